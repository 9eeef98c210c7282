"""Reading formats that a hostile file can attack: what runs in the disposable child process.

Nothing here imports Django, the settings or the rest of Verbatim: a child has to start quickly,
in little memory, and to hold nothing that a file could get at. `extractors/child.py` starts it.
"""
