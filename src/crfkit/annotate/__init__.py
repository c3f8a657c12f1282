"""The annotation page: a project on disk, a session that asks and learns, a server, formats in and out."""

__all__: list[str] = []
