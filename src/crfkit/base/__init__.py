"""What every room uses: files, threads, rules of parameters, lazy imports."""

__all__: list[str] = []
