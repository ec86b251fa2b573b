"""The vectors are data; the scripts that made some of them are no tests, and two need packages that are not here."""

collect_ignore = ["make_channels.py", "make_crds.py", "make_frames.py", "make_pure_ldp.py", "make_reports.py"]
