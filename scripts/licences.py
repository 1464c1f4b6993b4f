#!/usr/bin/env python3
"""Prints the licences of the code by others inside of a file that is shipped:

    cargo metadata --locked --format-version 1 --filter-platform TRIPLE | scripts/licences.py SHIPPED CRATE [FILE...]

SHIPPED is the name of that file and CRATE the package that it is built from. FILE is a licence of something that is no
crate. Ends with exit code 1 if a crate has no text or no licence that a program of any kind may contain.
"""
import json
import sys
from pathlib import Path

ALLOWED = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT", "Unicode-3.0",
           "Unlicense", "Zlib"}
# Sources that a crate contains and Rockmill's build does not compile.
NOT_COMPILED = {"libz-sys": "src"}
# Crates without a text of their own, and a file that has it: of the crate from the same repository, or Rockmill's.
TEXT_ELSEWHERE = {"alloc-stdlib": "alloc-no-stdlib", "flatbuffers": None, "stabby": None, "stabby-abi": None}
# What a file contains of its compiler's libraries beside that of Rust.
CXX = " and of C++ (GPL-3.0-or-later WITH GCC-exception-3.1)"
COMPILERS = {"rockmill": CXX, "the wheel": CXX}
OWN_LICENCE = Path(__file__).resolve().parent.parent / "LICENSE"


def inside(metadata, root):
    """The crates that `root` links: no build scripts, tests or macros."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found, todo = {}, [key for key, package in packages.items() if package["name"] == root]
    while todo:
        key = todo.pop()
        package = packages[key]
        is_macro = any("proc-macro" in target["kind"] for target in package["targets"])
        if key in found or is_macro:
            continue
        found[key] = package
        for dependency in nodes[key]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    others = [package for package in found.values() if package["source"] is not None]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def is_allowed(expression):
    """Whether one of the alternatives is allowed. An expression with brackets is not understood, and so not allowed."""
    return any(all(part.split(" WITH ")[0].strip() in ALLOWED for part in choice.split(" AND "))
               for choice in (expression or "").replace("/", " OR ").split(" OR "))


def texts(package, packages):
    """The crate's own licences and notices, and those of the C libraries in it. COPYING further down is about programs."""
    if package["name"] in TEXT_ELSEWHERE:
        elsewhere = [other for other in packages if other["name"] == TEXT_ELSEWHERE[package["name"]]]
        return texts(elsewhere[0], packages) if elsewhere else [OWN_LICENCE]
    folder = Path(package["manifest_path"]).parent
    found = [path for pattern in ("LICEN[CS]E*", "*/LICEN[CS]E*", "*/*/LICEN[CS]E*", "COPYING*", "COPYRIGHT*", "NOTICE*")
             for path in sorted(folder.glob(pattern)) if path.is_file()]
    left_out = NOT_COMPILED.get(package["name"])
    return [path for path in found if path.relative_to(folder).parts[0] != left_out]


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    shipped, root, *files = sys.argv[1:]
    packages = inside(json.load(sys.stdin), root)
    of = {package["id"]: texts(package, packages) for package in packages}
    wrong = [package for package in packages if not is_allowed(package["license"]) or not of[package["id"]]]
    for package in wrong:
        print(f"licences: {package['name']} {package['version']} has the licence {package['license']} and "
              f"{len(of[package['id']])} texts; look at it", file=sys.stderr)
    if wrong or not packages:
        return 1
    # Many crates share a text, which is printed once.
    users = {}
    for package in packages:
        for path in of[package["id"]]:
            users.setdefault(path.read_text(errors="replace").strip(), set()).add(
                f"{package['name']} {package['version']}")
    for name in files:
        users.setdefault(Path(name).read_text(errors="replace").strip(), set()).add(Path(name).parts[-3])
    print(f"{shipped} contains code of others under these licences, and the standard library of Rust (MIT OR Apache-2.0)"
          f"{COMPILERS.get(shipped, '')}.\n")
    for package in packages:
        print(f"{package['name']} {package['version']}: {package['license']}")
    for text, names in sorted(users.items(), key=lambda item: sorted(item[1])):
        print(f"\n{'=' * 80}\n{', '.join(sorted(names))}\n{'=' * 80}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
