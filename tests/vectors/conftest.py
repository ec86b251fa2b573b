"""The vectors are data; the script that made some of them needs packages that the project has not."""

collect_ignore = ["make_pure_ldp.py"]
