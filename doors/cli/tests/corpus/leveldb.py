"""Writes the databases of the corpus by LevelDB, which the package plyvel contains: scripts/corpus.sh runs it.

    python3 leveldb.py FOLDER        FOLDER/once and FOLDER/again, and their contents in FOLDER/once.txt and again.txt

A database of LevelDB has no column families, and no OPTIONS. Both end with entries in their log alone.
"""

import pathlib
import sys

import plyvel


def key(number):
    return b"key%05d" % number


def value(number, version):
    text = b"value %d of round %d " % (number, version)
    return text + b"x" * ((number * 7 + version * 13) % 40)


def tables(db, model, version):
    """Tables in several levels, with overwritten and deleted keys."""
    for begin, end in [(0, 240), (300, 360)]:
        for number in range(begin, end):
            put(db, model, key(number), value(number, version))
        db.compact_range()
    for number in range(0, 360, 3):
        put(db, model, key(number), value(number, version + 20))
    for number in range(5, 360, 11):
        delete(db, model, key(number))
    # Only these keys are compacted: the memtable becomes a table of level 0 or 1.
    db.compact_range(start=key(500), stop=key(501))


def log(db, model, version):
    """Entries that are in the log alone."""
    for number in range(1, 240, 17):
        put(db, model, key(number), value(number, version + 40))
    for number in range(7, 240, 29):
        delete(db, model, key(number))
    put(db, model, b"", b"the empty key")
    put(db, model, b"\x00\xff", b"")
    with db.write_batch() as batch:
        for number in range(500, 510):
            batch.put(key(number), value(number, version))
            model[key(number)] = value(number, version)
        batch.delete(key(501))
        del model[key(501)]


def put(db, model, name, data):
    db.put(name, data)
    model[name] = data


def delete(db, model, name):
    db.delete(name)
    model.pop(name, None)


def write(folder, name, sessions, **options):
    model = {}
    for session in range(1, sessions + 1):
        db = plyvel.DB(str(folder / name), create_if_missing=session == 1, block_size=1024, **options)
        tables(db, model, session)
        log(db, model, session + 2)
        # Many calls of Get would let LevelDB compact more, at a time of its own.
        found = list(db.iterator())
        assert found == sorted(model.items()), "not what was written"
        db.close()
    lines = [f"default {name.hex()} {data.hex()}\n" for name, data in found]
    (folder / f"{name}.txt").write_text("".join(lines))


if __name__ == "__main__":
    into = pathlib.Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    write(into, "once", 1, compression="snappy")
    write(into, "again", 2, compression=None, bloom_filter_bits=10)
