"""ci/wheel's writer: wheels of files that are built already, with equal bytes for equal files.

    write_wheels.py OUT --probe FOLDER --configs FOLDER --program FILE --hash-library FILE [--program FILE --hash-library FILE ...]

`lockstep-probe` is the Python package alone, and says which version all of this is. `lockstep-judge`, one for each program, holds the
program `lockstep` (pip puts it on PATH as it is, so it starts without Python), the configs where the program looks for them, and the hash
library in the package folder `lockstep_hash`.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import struct
import subprocess
import zipfile

TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold
OLDEST_GLIBC = (2, 28)  # what zig compiles for, and torch asks for
MACHINES = {62: "x86_64", 183: "aarch64"}  # by the number in an ELF header
ROOT = pathlib.Path(__file__).parent.parent

HASH_PACKAGE = '''"""The library that hashes tensors for lockstep_probe. `library`: its path."""

import pathlib

library = str(pathlib.Path(__file__).with_name("liblockstep_hash.so"))
'''

COMMON = """License-Expression: MIT
License-File: LICENSE
Requires-Python: >=3.9
Keywords: pytorch,distributed training,reproducibility,debugging
Classifier: Development Status :: 4 - Beta
Classifier: Environment :: Console
Classifier: Intended Audience :: Developers
Classifier: Intended Audience :: Science/Research
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Topic :: Software Development :: Testing
Description-Content-Type: text/markdown
"""

PROBE = """Metadata-Version: 2.4
Name: lockstep-probe
Version: {version}
Summary: Writes what a PyTorch trainer computes, rank by rank and step by step, for `lockstep compare`
Classifier: Framework :: Pytest
Requires-Dist: torch
"""

PROBE_ENTRY_POINTS = b"[pytest11]\nlockstep = lockstep_probe.pytest_plugin\n"

JUDGE = """Metadata-Version: 2.4
Name: lockstep-judge
Version: {version}
Summary: The program `lockstep`: says whether two distributed training runs train the same, and where they first differ
"""


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_wheel(out, name, version, tag, files, metadata, entry_points=b""):
    """`files`: a list of (path in the wheel, bytes, whether it can be executed)."""
    info = f"{name}-{version}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    described = f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    described_by = metadata.format(version=version) + COMMON + "\n" + (ROOT / "README.md").read_text()
    files = sorted(files) + [
        (f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), False),
        *([(f"{info}/entry_points.txt", entry_points, False)] if entry_points else []),
        (f"{info}/METADATA", described_by.encode(), False),
        (f"{info}/WHEEL", described.encode(), False),
    ]
    record = [f"{path},{digest(data)},{len(data)}\n" for path, data, _ in files] + [f"{info}/RECORD,,\n"]
    files.append((f"{info}/RECORD", "".join(record).encode(), False))
    target = out / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(target, "w") as wheel:
        for path, data, executable in files:
            entry = zipfile.ZipInfo(path, TIME)
            entry.create_system = 3  # unix: the upper half below is a mode
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    print(target)


def files_below(folder, prefix):
    """All files of a folder, but for what Python compiled."""
    return [
        (f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes(), False)
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]


def tag_of(binaries):
    """The platform that these files ask for: machine, and the newest version of glibc's symbols."""
    text = "".join(
        subprocess.run(["readelf", "--version-info", "--wide", binary], check=True, capture_output=True, text=True).stdout
        for binary in binaries
    )
    major, minor = max([OLDEST_GLIBC] + [(int(a), int(b)) for a, b in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text)])
    (machine,) = {MACHINES[struct.unpack_from("<H", pathlib.Path(binary).read_bytes(), 18)[0]] for binary in binaries}
    return f"py3-none-manylinux_{major}_{minor}_{machine}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    for option in ("probe", "configs"):
        parser.add_argument(f"--{option}", required=True)
    for option in ("program", "hash-library"):
        parser.add_argument(f"--{option}", required=True, action="append")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)

    version = re.search(r'__version__ = "(.*)"', (pathlib.Path(asked.probe) / "__init__.py").read_text())[1]
    write_wheel(asked.out, "lockstep_probe", version, "py3-none-any", files_below(asked.probe, "lockstep_probe"), PROBE, PROBE_ENTRY_POINTS)

    data = f"lockstep_judge-{version}.data"
    for program, library in zip(asked.program, asked.hash_library):
        judge = [
            (f"{data}/scripts/lockstep", pathlib.Path(program).read_bytes(), True),
            ("lockstep_hash/__init__.py", HASH_PACKAGE.encode(), False),
            ("lockstep_hash/liblockstep_hash.so", pathlib.Path(library).read_bytes(), True),
            *files_below(asked.configs, f"{data}/data/share/lockstep/configs"),
        ]
        write_wheel(asked.out, "lockstep_judge", version, tag_of([program, library]), judge, JUDGE)


if __name__ == "__main__":
    main()
