"""One target under coverage-guided fuzzing, or one input again.

    python -m tests.fuzz TARGET --again FILE      # a finding, once
    python -m tests.fuzz TARGET [libFuzzer options] [corpus directories]

Needs atheris: `make fuzz` installs it.
"""

import sys
from pathlib import Path


def main() -> None:
    name, *options = sys.argv[1:]
    if options[:1] == ["--again"]:
        from tests.fuzz.properties import PROPERTIES

        PROPERTIES[name](Path(options[1]).read_bytes())
        print(f"{name}: the property holds for {options[1]}")
        return
    import atheris

    with atheris.instrument_imports(include=["pointsman"]):
        from tests.fuzz.properties import PROPERTIES
    atheris.Setup([sys.argv[0], *options], PROPERTIES[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
