"""The schema of a store and its versions: Alembic's revisions in `migrations`, applied all or none.

A change of the tables is a new file in `migrations/versions`, whose `down_revision` is the last one before.
"""

from pathlib import Path

import sqlalchemy as sa

from cookhouse.errors import InputError

_VERSIONS = Path(__file__).parent / "migrations" / "versions"


def revision(connection: sa.Connection) -> str | None:
    """Revision of a database; None if it is new.

    Raises:
        InputError: a newer version of cookhouse made it, or another program.
    """
    names = sa.inspect(connection).get_table_names()
    versions = sa.table("alembic_version", sa.column("version_num"))
    found = connection.execute(sa.select(versions.c.version_num)).scalar() if versions.name in names else None
    if found is None and names:
        raise InputError("it is another program's database; choose another database or state folder")
    if found is not None and found not in revisions():
        raise InputError(
            f"it was made by a newer version of cookhouse (schema {found}, this one has {newest()}); use that version, "
            "or choose another database or state folder"
        )
    return None if found is None else str(found)


def revisions() -> list[str]:
    """Revisions of this version, oldest first. From the names of their files: loading Alembic takes long."""
    return sorted(file.name.split("_")[0] for file in _VERSIONS.glob("[0-9]*.py"))


def newest() -> str:
    return revisions()[-1]


def upgrade(connection: sa.Connection) -> None:
    """Bring a database to the schema of this version, in the transaction that the connection is in."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "cookhouse.server.storage.store:migrations")
    command.upgrade(config, "head")
