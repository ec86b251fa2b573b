"""The service, where the rooms are wired together: `stream`, one stream's two loops; `run`, the process around them."""
