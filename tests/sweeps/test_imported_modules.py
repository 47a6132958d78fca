"""What code imports from beside it is found in its text: which files, and what cannot be seen."""

import pytest

from scalevec.model.fields import ConfigurationError
from scalevec.sweeps.trainers import source_files
from scalevec.sweeps.trainers.source_files import files_of_words, not_covered, with_imports


@pytest.fixture
def folder(tmp_path):
    """Makes a folder of files, given by their paths, and says which ``train.py`` rests on."""

    def make(train, *empty, script="train.py", words=(), **files):
        contents = {script: train, **dict.fromkeys(empty, ""), **files}
        for name, content in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return [name for name in with_imports(tmp_path, [script], words) if name != script]

    make.path = tmp_path
    return make


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("subprocess.run([sys.executable, 'real.py'])", ["train.py:1 real.py"]),
        ("os.system('python real.py --x')", ["train.py:1 real.py"]),
        ("eval(open('conf.json').read())", ["train.py:1 conf.json"]),
        ("import sys as s; s.path.append('src')", ["train.py:1 src"]),
        ("print('what real.txt says')", []),
        ("open(os.path.join('data', ds, 'train.bin'))", ["train.py:1 data"]),
        ("open(Path(__file__).parent / 'data' / 'train.txt')", ["train.py:1 data"]),
        ("glob.glob('data/*.txt')", ["train.py:1 data/*.txt"]),
        ("open(f'data/{n}.txt')", ["train.py:1 data/*.txt"]),
        ("open(f'co{n}.json')", ["train.py:1 co*.json"]),
        ("Path('.').glob('c*.json')", ["train.py:1 c*.json"]),
        ("print(f'{n}.bin')", []),
        ("key = 'data'", []),
    ],
)
def test_a_file_beside_a_script_that_its_text_names_is_said(folder, code, lines):
    folder(code, "real.py", "conf.json", "src/m.py", "data/train.txt")
    assert not_covered(folder.path, ["train.py"]) == lines


@pytest.mark.parametrize(
    ("statement", "files"),
    [
        ("import model", ["model.py"]),
        ("from model import Net", ["model.py"]),
        ("def late():\n    try:\n        import model\n    except ImportError: pass", ["model.py"]),
        ("import importlib; importlib.import_module('model')", ["model.py"]),
        ("import pack", ["pack/__init__.py", "pack/deep/a.py", "pack/inner.py"]),
        ("from pack.deep import a", ["pack/__init__.py", "pack/deep/a.py", "pack/inner.py"]),
        ("import plain.inner", ["plain/inner.py"]),
        ("from plain import inner, other", ["plain/inner.py"]),
        ("from plain import *", []),
        ("import 3", []),
    ],
)
def test_an_import_is_of_the_module_or_the_whole_package_beside_the_script(folder, statement, files):
    paths = ("model.py", "pack/__init__.py", "pack/inner.py", "pack/deep/a.py", "pack/data.json")
    assert folder(statement, *paths, "plain/inner.py", "plain/unused.py", "unused.py") == files


def test_what_is_imported_is_followed_and_a_circle_ends(folder):
    files = {"a.py": "import b", "b.py": "from c import x", "c.py": "import a, train"}
    assert folder("import a", **files) == ["a.py", "b.py", "c.py"]


def test_a_relative_import_is_of_the_folder_of_its_own_file(folder):
    files = {"plain/a.py": "from .b import x\nfrom .. import top", "b.py": ""}
    assert folder("import plain.a", "plain/b.py", "top.py", **files) == ["plain/a.py", "plain/b.py", "top.py"]


def test_modules_lie_beside_the_script_and_in_the_sweeps_folder(folder):
    files = {"lab/near.py": "import far", "far.py": "import beside"}
    names = folder("import near", "lab/beside.py", script="lab/train.py", **files)
    assert names == ["far.py", "lab/beside.py", "lab/near.py"]


def test_what_python_would_take_in_place_of_its_own_counts_though_nobody_names_it(folder):
    expected = [*("random.py", "sitecustomize.py")]
    assert folder("import torch", "random.py", "sitecustomize.py", "plot.py") == expected


def test_a_compiled_module_counts_by_its_bytes(folder):
    suffix = source_files.all_suffixes()[2]
    assert folder("import model", f"model{suffix}", "model.py") == [f"model{suffix}", "model.py"]


@pytest.mark.parametrize("words", [["python", "-m", "model"], ["python", "-c", "import model"]])
def test_words_of_a_command_may_name_modules(folder, words):
    assert folder("", "model.py", "other.py", words=words) == ["model.py"]


def test_a_file_that_is_no_python_is_covered_by_itself(folder):
    assert folder("import model", **{"model.py": "import other, (", "other.py": ""}) == ["model.py"]
    assert not_covered(folder.path, ["train.py", "model.py"]) == ["what model.py imports or starts"]


def test_more_than_is_sane_is_refused(folder, monkeypatch):
    monkeypatch.setattr(source_files, "MOST_FILES", 3)
    with pytest.raises(ConfigurationError, match=r"5 files.*allowed: 3 files .*keep data elsewhere"):
        folder("import pack", *(f"pack/{name}.py" for name in ("__init__", *"abcd")))


def test_links_in_a_circle_end(folder, monkeypatch):
    monkeypatch.setattr(source_files, "MOST_FILES", 60)
    folder("", "pack/__init__.py")
    for name in "ab":
        (folder.path / "pack" / name).symlink_to(folder.path / "pack")
    with pytest.raises(ConfigurationError, match="allowed: 60 files"):
        folder("import pack")


@pytest.mark.parametrize(
    "line",
    [
        "exec(open('configurator.py').read())",
        "importlib.import_module(name)",
        "__import__(name)",
        "runpy.run_path(name)",
        "sys.path.insert(0, 'lib')",
        "sys.path += ['lib']",
        "sys.path[0:0] = ['lib']",
    ],
)
def test_what_is_found_only_at_run_time_is_named_with_its_line_unless_its_file_is_covered(folder, line):
    folder(f"import sys\n{line}\n", "configurator.py", "lib/a.py")
    assert not_covered(folder.path, ["train.py"]) == [f"train.py:2 {line}"]
    named = ["train.py", "configurator.py", "lib/a.py"]
    assert bool(not_covered(folder.path, named)) is ("name" in line)


def test_a_folder_of_settings_that_a_script_names_is_not_covered(folder):
    folder("@hydra.main(config_path='conf')\ndef main(): pass\n", "conf/model.yaml")
    assert not_covered(folder.path, ["train.py"]) == ["train.py:1 conf"]
    assert not_covered(folder.path, ["train.py", "conf/model.yaml"]) == []


@pytest.mark.parametrize("word", ["data", "--data-dir=data", "data/"])
def test_a_folder_that_a_word_of_the_command_names_is_not_covered(folder, word):
    folder("", "data/train.bin")
    assert not_covered(folder.path, ["train.py"], ["train.py", word]) == ["what is in data"]
    assert not_covered(folder.path, ["train.py", "data/train.bin"], [word]) == []


@pytest.mark.parametrize("script", ["launch", "Makefile", "run.bash"])
def test_what_a_script_without_a_suffix_starts_is_not_covered(folder, script):
    folder("python train.py --fast\n", script=script)
    assert not_covered(folder.path, [script]) == [f"what {script} imports or starts"]


def test_a_file_that_settings_include_is_not_covered(folder):
    folder("lr: 0.5\ninclude: base.yaml\n", "conf/base.yaml", script="conf/exp.yaml")
    assert not_covered(folder.path, ["conf/exp.yaml"]) == ["conf/exp.yaml:2 base.yaml"]
    assert not_covered(folder.path, ["conf/exp.yaml", "conf/base.yaml"]) == []


def test_nothing_that_can_be_seen_is_said_to_be_unseen(folder):
    folder("import a\nmodel.exec()\nlist.append(1)\npath.insert(0, 1)\nimport_module('a')\n", "a.py")
    assert not_covered(folder.path, ["train.py", "a.py"]) == []


@pytest.mark.parametrize(
    "word",
    [
        *("a.yaml", "--config=a.yaml", "@a.yaml", "-ca.yaml", "--c=x,a.yaml", "--o=d=a.yaml"),
        *("--data=train:a.yaml", '{"train":"a.yaml"}', "FOLDER/a.yaml", "--config=FOLDER/a.yaml"),
    ],
)
def test_a_file_is_found_wherever_a_word_of_the_command_has_it(tmp_path, word):
    (tmp_path / "a.yaml").touch()
    words = ["python", word.replace("FOLDER", str(tmp_path)), "-c", "b.yaml"]
    assert set(files_of_words(tmp_path, words)) == {"a.yaml"}


def test_data_of_a_package_that_is_covered_are_not(folder):
    folder("import pack\nget_data('pack', 'defaults.yaml')", "pack/__init__.py", "pack/defaults.yaml")
    assert not_covered(folder.path, ["train.py", "pack/__init__.py"]) == ["train.py:2 defaults.yaml"]
