"""Builds weft's wheel for pip: python/weft, and build/libweft.so if it is there.

A wheel is a zip file of the package, its metadata and a list of hashes, so this backend (PEP 517, PEP
660) needs neither setuptools nor a network. Without build/libweft.so the wheel fits any platform, and
the package looks for an installed library.
"""
import base64
import hashlib
import os
import re
import sysconfig
import zipfile

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _read(*path):
    with open(os.path.join(_ROOT, *path), "rb") as file:
        return file.read()


def _package():
    """Name in the wheel -> bytes, and whether the library is among them."""
    names = [name for name in sorted(os.listdir(os.path.join(_ROOT, "python", "weft"))) if name.endswith((".py", ".typed"))]
    files = {f"weft/{name}": _read("python", "weft", name) for name in names}
    has_library = os.path.exists(os.path.join(_ROOT, "build", "libweft.so"))
    if has_library:
        files["weft/libweft.so"] = _read("build", "libweft.so")
    return files, has_library


def _write(folder, files, tag):
    version = re.search(rb'define WEFT_VERSION +"(.*)"', _read("include", "weft", "weft.h"))[1].decode()
    about = f"weft-{version}.dist-info"
    files = {**files, f"{about}/licenses/LICENSE": _read("LICENSE"),
             f"{about}/METADATA": (f"Metadata-Version: 2.1\nName: weft\nVersion: {version}\n"
                                   "Summary: Trains one neural network on many devices, with the same bits\n"
                                   "License: Apache-2.0\nRequires-Python: >=3.8\n").encode(),
             f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()}
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
                     for name, data in files.items())
    files[f"{about}/RECORD"] = (record + f"{about}/RECORD,,\n").encode()
    wheel = f"weft-{version}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook that pip install . calls."""
    files, has_library = _package()
    platform = re.sub("[-.]", "_", sysconfig.get_platform()) if has_library else "any"
    return _write(wheel_directory, files, f"py3-none-{platform}")


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook that pip install -e . calls: Python reads the package from this folder."""
    return _write(wheel_directory, {"weft.pth": os.path.join(_ROOT, "python").encode()}, "py3-none-any")
