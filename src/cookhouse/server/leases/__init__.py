"""Several servers over one database: each session is held by one of them, which answers for it."""
