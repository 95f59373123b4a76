"""Unpacks the models from the wheels that requirements.txt names.

Usage: python3 unpack_models.py WHEELS MODELS

Every package gets a flat folder MODELS/<package>/ with its ONNX files, the side files that are
needed to use them, and its licence. A pattern that matches nothing is an error, so that a new
version of a package that moved its files is noticed here and not in a test.
"""

import fnmatch
import pathlib
import sys
import zipfile

# Package -> what to take from its wheel. A folder of MODELS has the package's name.
WANTED = {
    "magika": [
        "magika/models/standard_v3_3/model.onnx",
        "magika/models/standard_v3_3/config.min.json",
        "magika/config/content_types_kb.min.json",
    ],
    "silero-vad": [
        "silero_vad/data/*.onnx",
        "*.dist-info/licenses/*",
    ],
    # The recogniser's characters are in its ONNX metadata ("character"), so there is no dictionary.
    "rapidocr": [
        "rapidocr/models/*.onnx",
        "rapidocr/config.yaml",
        "*.dist-info/licenses/*",
    ],
}


def main(wheels: pathlib.Path, models: pathlib.Path) -> None:
    for package, patterns in WANTED.items():
        found = list(wheels.glob(package.replace("-", "_") + "-*.whl"))
        if len(found) != 1:
            sys.exit(f"{package}: expected one wheel in {wheels}, found {len(found)}")
        folder = models / package
        folder.mkdir(parents=True)
        with zipfile.ZipFile(found[0]) as wheel:
            for pattern in patterns:
                names = fnmatch.filter(wheel.namelist(), pattern)
                if not names:
                    sys.exit(f"{package}: nothing in {found[0].name} matches {pattern}")
                for name in names:
                    target = folder / pathlib.PurePosixPath(name).name
                    with open(target, "xb") as file:
                        file.write(wheel.read(name))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
