"""The source python-packages: what installed distributions hold, by their own lists of files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_reference import read_documents
from scalevec.model.data import CorpusConfig, CorpusError
from scalevec.model.data.prepare import fingerprint, prepare
from scalevec.model.data.sources import corpus_files

Install = Callable[..., None]


def config(*packages: str) -> CorpusConfig:
    return CorpusConfig("python-packages", "bytes", 256, packages)


def quiet(_: str) -> None:
    pass


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
    paths = [file.path.relative_to(site).as_posix() for file in corpus_files(config("one-pack==1.0"))]
    assert paths == kept


def test_a_source_that_is_not_utf8_is_skipped_and_named(install: Install) -> None:
    install("one", "1.0", {"one/good.py": b"x\n", "one/latin.py": b"# caf\xe9\n"})
    skipped: list[str] = []
    assert len(read_documents(config("one"), skipped.append)) == 1
    assert skipped == ["one/latin.py"]


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("two", "corpus package 'two' is not installed; pip install 'two', or leave it out"),
        ("one==1.1", "corpus package 'one==1.1': version 1.0.cpu is installed, which has other text"),
        ("empty", "corpus package 'empty' has no Python sources"),
        ("broken", "its file .*gone.py' is gone; install it again"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(
    install: Install, site: Path, tmp_path: Path, package: str, message: str
) -> None:
    install("one", "1.0+cpu", {"one/a.py": b"x\n"})
    install("empty", "1.0", {"empty/a.txt": b"x\n"})
    install("broken", "1.0", {"broken/gone.py": b"x\n"})
    (site / "broken" / "gone.py").unlink()
    with pytest.raises(CorpusError, match=message):
        prepare(config(package), tmp_path / "corpora", quiet)
    assert not (tmp_path / "corpora").exists()


def test_a_version_stands_for_all_its_builds(install: Install) -> None:
    install("one", "1.0+cpu", {"one/a.py": b"x\n"})
    assert [len(list(corpus_files(config(name)))) for name in ("one", "one==1.0", "one==1.0+cpu")] == [
        1,
        1,
        1,
    ]


def test_the_fingerprint_is_of_the_content_and_equal_files_count_once(install: Install) -> None:
    lines = {f"one/m{n}.py": f"value_{n} = {n}\n".encode() * 40 for n in range(60)}
    install("one", "1.0", lines)
    install("other", "7.3", {name.replace("one/", "other/"): text for name, text in lines.items()})
    install("further", "1.0", {"further/a.py": b"something = 'else'\n"})
    first, other, both, more = (
        fingerprint(config(*packages))
        for packages in (("one",), ("other==7.3",), ("one", "other"), ("one", "further"))
    )
    assert first == other == both
    assert more != first


def test_a_prepared_corpus_is_known_again_until_a_file_changes(
    install: Install, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalevec.model.data.sources.YOUNG_NS", 0)
    install("one", "1.0", {f"one/m{n}.py": f"value_{n} = {n}\n".encode() * 40 for n in range(60)})
    corpora = tmp_path / "corpora"
    corpus = prepare(config("one"), corpora, quiet)
    assert prepare(config("one"), corpora, quiet).facts.fingerprint == corpus.facts.fingerprint
    (site / "one" / "m0.py").write_text("changed = True\n")
    assert fingerprint(config("one"), quiet, corpora) != corpus.facts.fingerprint
