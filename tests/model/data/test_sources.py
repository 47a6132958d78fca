"""Which files a corpus has, and their documents: files by name, the standard library, packages."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_reference import quiet, read_documents
from scalevec.model.data import CorpusConfig, CorpusError
from scalevec.model.data.formats import BLOCK, NotTextError
from scalevec.model.data.prepare import fingerprint, prepare
from scalevec.model.data.sources import corpus_files, stdlib_files


def text(patterns: tuple[str, ...]) -> list[bytes]:
    """The documents of the source ``text``."""
    config = CorpusConfig("text", "bytes", 256, patterns)
    return read_documents(config)


def write(path: Path, content: bytes = b"text\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_the_standard_library_is_read_without_tests_tools_and_installed_packages(tmp_path: Path) -> None:
    kept = ["abc.py", "encodings/utf_8.py", "testing.py", "zipfile.py"]
    left_out = [
        *("test/test_abc.py", "unittest/test/x.py", "lib2to3/pytree.py", "idlelib/idle.py"),
        *("site-packages/torch/a.py", "dist-packages/a.py", "distutils/tests/a.py", "json/__pycache__/a.py"),
        *("_sysconfigdata__linux.py", "sitecustomize.py", "config-3.11/python-config.py", "notes.txt"),
    ]
    for name in kept + left_out:
        write(tmp_path / name)
    assert [path.relative_to(tmp_path).as_posix() for path in stdlib_files(tmp_path)] == kept


def test_a_library_file_that_is_not_utf8_is_skipped_and_named(tmp_path, monkeypatch):
    write(tmp_path / "good.py", "é\n".encode())
    write(tmp_path / "old" / "latin.py", b"# caf\xe9\n")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    skipped: list[str] = []
    config = CorpusConfig("python-stdlib", "bytes", 256)
    assert read_documents(config, skipped.append) == ["é\n".encode()]
    assert skipped == ["old/latin.py"]


def test_a_pattern_reaches_into_directories(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"a")
    write(tmp_path / "deep" / "down" / "b.txt", b"b")
    write(tmp_path / "c.md", b"c")
    assert text((f"{tmp_path}/**/*.txt",)) == [b"a", b"b"]


def test_a_name_with_pattern_characters_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "part[1].txt", b"a")
    assert text((str(path),)) == [b"a"]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"a")
    assert text((str(path), f"{tmp_path}/*.txt")) == [b"a"]


@pytest.mark.parametrize("name", ["missing.txt", "*.nothing", "**/*.nothing"])
def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.txt")
    with pytest.raises(CorpusError, match="does not exist") as error:
        text((str(tmp_path / "a.txt"), str(tmp_path / name)))
    assert name in str(error.value)


def test_a_directory_is_refused_with_what_to_write_instead(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"is a directory; name its files"):
        text((str(tmp_path),))


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        (b"\xe9 ", f"at byte {BLOCK + 1}"),
        (b"\0", f"a NUL byte at byte {BLOCK + 1}"),
        (b"\xe2\x82", f"unexpected end of data at byte {BLOCK + 1}"),
    ],
)
def test_the_place_of_a_fault_counts_from_the_beginning_of_a_large_file(tmp_path, end, fault):
    path = write(tmp_path / "large.txt", b"x" * (BLOCK - 1) + "é".encode() + end)  # é straddles two blocks
    with pytest.raises(NotTextError, match=rf"large\.txt' is not UTF-8 text: .*{fault}"):
        text((str(path),))


Install = Callable[..., None]


def packages_config(*packages: str) -> CorpusConfig:
    return CorpusConfig("python-packages", "bytes", 256, packages)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def install(site: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution with these files."""
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"purelib": str(site), "stdlib": "/nowhere"})

    def make(name: str, version: str, files: dict[str, bytes]) -> None:
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        for path, content in files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(content)
        lines = [*files, f"{info.name}/METADATA", f"{info.name}/RECORD"]
        (info / "RECORD").write_text("".join(f"{line},,\n" for line in lines))

    return make


def test_the_sources_that_a_distribution_lists_are_read_without_tests(install: Install, site: Path) -> None:
    kept = ["one/__init__.py", "one/deep/b.py", "single.py"]
    left_out = ["one/tests/test_b.py", "one/data.json", "one/b.pyc", "../bin/run.py"]
    install("One.Pack", "1.0", dict.fromkeys([*kept, *left_out], b"x = 1\n"))
    (site / "one" / "not_listed.py").write_text("y = 2\n")
    files = corpus_files(packages_config("one-pack==1.0"))
    paths = [file.path.relative_to(site).as_posix() for file in files]
    assert paths == kept


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("two", "corpus package 'two' is not installed; pip install 'two', or leave it out"),
        ("one==1.1", "corpus package 'one==1.1': version 1.0.cpu is installed, which has other text"),
        ("empty", "corpus package 'empty' has no Python sources"),
        ("broken", "its file .*gone.py' is gone; install it again"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(install, site, tmp_path, package, message):
    install("one", "1.0+cpu", {"one/a.py": b"x\n"})
    install("empty", "1.0", {"empty/a.txt": b"x\n"})
    install("broken", "1.0", {"broken/gone.py": b"x\n"})
    (site / "broken" / "gone.py").unlink()
    with pytest.raises(CorpusError, match=message):
        prepare(packages_config(package), tmp_path / "corpora", quiet)
    assert not (tmp_path / "corpora").exists()


def test_a_version_stands_for_all_its_builds(install: Install) -> None:
    install("one", "1.0+cpu", {"one/a.py": b"x\n"})
    actual = [len(list(corpus_files(packages_config(name)))) for name in ("one", "one==1.0", "one==1.0+cpu")]
    assert actual == [1, 1, 1]


def test_the_fingerprint_is_of_the_content_and_equal_files_count_once(install: Install) -> None:
    lines = {f"one/m{n}.py": f"value_{n} = {n}\n".encode() * 40 for n in range(60)}
    install("one", "1.0", lines)
    install("other", "7.3", {name.replace("one/", "other/"): text for name, text in lines.items()})
    install("further", "1.0", {"further/a.py": b"something = 'else'\n"})
    first, other, both, more = (
        fingerprint(packages_config(*packages))
        for packages in (("one",), ("other==7.3",), ("one", "other"), ("one", "further"))
    )
    assert first == other == both
    assert more != first


def test_a_corpus_of_named_versions_is_known_where_they_are_not_installed(install, site, tmp_path):
    install("one", "1.0", {"one/a.py": b"x = 1\n" * 500, "one/b.py": b"y = 2\n" * 500})
    config = packages_config("one==1.0")
    prepared = prepare(config, tmp_path / "corpora", quiet)
    shutil.rmtree(site)
    site.mkdir()
    assert prepare(config, tmp_path / "corpora", quiet).facts.fingerprint == prepared.facts.fingerprint
    with pytest.raises(CorpusError, match="not installed"):
        prepare(packages_config("one"), tmp_path / "corpora", quiet)
