"""Keeps pytest from importing the scripts that make vectors; three need other packages."""

collect_ignore = [
    "make_channels.py",
    "make_crds.py",
    "make_estimates.py",
    "make_frames.py",
    "make_pure_ldp.py",
    "make_reports.py",
]
