"""ci/wheel's writer: two wheels of files that are built already, with equal bytes for equal files.

    write_wheels.py OUT --version V --probe FOLDER --program FILE --hash-library FILE --configs FOLDER --license FILE

`lockstep-probe` is the Python package alone. `lockstep-judge` holds the program `lockstep` (pip puts it on PATH as it is, so it starts
without Python), the configs where the program looks for them, and the hash library in the package folder `lockstep_hash`.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import zipfile

TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold
OLDEST_GLIBC = (2, 17)  # pip of all ages knows manylinux tags from here on

HASH_PACKAGE = '''"""The library that hashes tensors for lockstep_probe. `library`: its path."""

import pathlib

library = str(pathlib.Path(__file__).with_name("liblockstep_hash.so"))
'''

PROBE = """Metadata-Version: 2.1
Name: lockstep-probe
Version: {version}
Summary: Writes what a PyTorch trainer computes, rank by rank and step by step, for `lockstep compare`
License: MIT
License-File: LICENSE
Requires-Python: >=3.9
Requires-Dist: torch
"""

PROBE_ENTRY_POINTS = b"[pytest11]\nlockstep = lockstep_probe.pytest_plugin\n"

JUDGE = """Metadata-Version: 2.1
Name: lockstep-judge
Version: {version}
Summary: The program `lockstep`: says whether two distributed training runs train the same, and where they first differ
License: MIT
License-File: LICENSE
Requires-Python: >=3.9
"""


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_wheel(out, name, version, tag, files, metadata, license_text, entry_points=b""):
    """`files`: a list of (path in the wheel, bytes, whether it can be executed)."""
    info = f"{name}-{version}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    described = f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    files = sorted(files) + [
        (f"{info}/licenses/LICENSE", license_text, False),
        *([(f"{info}/entry_points.txt", entry_points, False)] if entry_points else []),
        (f"{info}/METADATA", metadata.format(version=version).encode(), False),
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


def stripped(binary, work):
    target = work / pathlib.Path(binary).name
    subprocess.run(["strip", "--strip-unneeded", "-o", target, binary], check=True)
    data = target.read_bytes()
    target.unlink()
    return data


def newest_glibc(binaries):
    """The newest version of glibc's symbols that these files ask for: what the tag promises."""
    text = "".join(
        subprocess.run(["objdump", "-T", binary], check=True, capture_output=True, text=True).stdout
        for binary in binaries
    )
    return max([OLDEST_GLIBC] + [(int(a), int(b)) for a, b in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    for option in ("version", "probe", "program", "hash-library", "configs", "license"):
        parser.add_argument(f"--{option}", required=True)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    license_text = pathlib.Path(asked.license).read_bytes()

    probe = files_below(asked.probe, "lockstep_probe")
    write_wheel(asked.out, "lockstep_probe", asked.version, "py3-none-any", probe, PROBE, license_text, PROBE_ENTRY_POINTS)

    data = f"lockstep_judge-{asked.version}.data"
    judge = [
        (f"{data}/scripts/lockstep", stripped(asked.program, asked.out), True),
        ("lockstep_hash/__init__.py", HASH_PACKAGE.encode(), False),
        ("lockstep_hash/liblockstep_hash.so", stripped(asked.hash_library, asked.out), True),
        *files_below(asked.configs, f"{data}/data/share/lockstep/configs"),
    ]
    major, minor = newest_glibc([asked.program, asked.hash_library])
    tag = f"py3-none-manylinux_{major}_{minor}_x86_64"
    write_wheel(asked.out, "lockstep_judge", asked.version, tag, judge, JUDGE, license_text)


if __name__ == "__main__":
    main()
