"""Run a benchmark from the command line and print its figures, or its whole result as JSON."""

import argparse
import json
from dataclasses import fields
from pathlib import Path

from benchmarks.harness import Options, available, render, run


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=sorted(available()), help="without it, they are listed")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--no-lock", dest="lock", action="store_false", help="stress without the commit lock")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--commits", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--directory", type=Path, help="where the tables are made; on the disk to measure")
    parser.add_argument("--output", type=Path, help="write the result to this file as JSON, too")
    given = {key: value for key, value in vars(parser.parse_args()).items() if value is not None}
    if "name" not in given:
        for name, description in sorted(available().items()):
            print(f"{name:12} {description}")
        return
    known = {field.name for field in fields(Options)}
    result = run(given["name"], **{key: value for key, value in given.items() if key in known})
    if "output" in given:
        given["output"].write_text(json.dumps(result, indent=2) + "\n")
    print(render(result))


if __name__ == "__main__":
    main()
