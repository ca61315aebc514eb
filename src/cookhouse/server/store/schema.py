"""The schema of a store and its versions: Alembic's revisions in `migrations`, applied all or none.

A change of the tables is a new file in `migrations/versions`, whose `down_revision` is the last one before.
"""

from pathlib import Path

import sqlalchemy as sa

from cookhouse.errors import InputError

_VERSIONS = Path(__file__).parent / "migrations" / "versions"


def is_current(connection: sa.Connection) -> bool:
    """Whether a database has the schema of this version.

    Raises:
        InputError: a newer version of cookhouse made it, or another program.
    """
    known = revisions()
    revision = _revision(connection)
    if revision is not None and revision not in known:
        raise InputError(
            f"it was made by a newer version of cookhouse (schema {revision}, this one has {known[-1]}); use that "
            "version, or choose another database or state folder"
        )
    return revision == known[-1]


def revisions() -> list[str]:
    """Those of this version, oldest first. From the names of their files: loading Alembic takes long."""
    return sorted(file.name.split("_")[0] for file in _VERSIONS.glob("[0-9]*.py"))


def upgrade(connection: sa.Connection) -> None:
    """Bring a database to the schema of this version, in the transaction that the connection is in."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "cookhouse.server.store:migrations")
    command.upgrade(config, "head")


def _revision(connection: sa.Connection) -> str | None:
    names = sa.inspect(connection).get_table_names()
    versions = sa.table("alembic_version", sa.column("version_num"))
    revision = connection.execute(sa.select(versions.c.version_num)).scalar() if versions.name in names else None
    if revision is None and names:
        raise InputError("it is another program's database; choose another database or state folder")
    return None if revision is None else str(revision)
