"""The schema of a store and its versions: Alembic's revisions in `migrations`, applied all or none.

A change of the tables in `store` is a new file in `migrations/versions`, whose `down_revision` is the last one before.
"""

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from cookhouse.errors import InputError


def is_current(connection: sa.Connection) -> bool:
    """Whether a database has the schema of this version.

    Raises:
        InputError: a newer version of cookhouse made it, or another program.
    """
    scripts = ScriptDirectory.from_config(_config(connection))
    revision = _revision(connection)
    known = {script.revision for script in scripts.walk_revisions()}
    if revision is None and sa.inspect(connection).get_table_names():
        raise InputError("it is another program's database; choose another state folder")
    if revision is not None and revision not in known:
        raise InputError(
            f"it was made by a newer version of cookhouse (schema {revision}, this one has "
            f"{scripts.get_current_head()}); use that version, or choose another state folder"
        )
    return revision == scripts.get_current_head()


def upgrade(connection: sa.Connection) -> None:
    """Bring a database to the schema of this version, in the transaction that the connection is in."""
    command.upgrade(_config(connection), "head")


def _revision(connection: sa.Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config(connection: sa.Connection) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "cookhouse.server.store:migrations")
    return config
