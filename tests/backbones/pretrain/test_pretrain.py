import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from bristle._core.extras import to_install
from bristle.backbones import OnnxBackbone
from bristle.backbones.pretrain import About, EpochProgress, Pretrained, Recipe, pretrain
from bristle.data import Dataset

SMALL = Recipe(width=4, epochs=3, batch=16, learning_rate=0.02, averaging=0.5, validation=0.1)


def bars(*, shape: tuple[int, ...] = (20, 20), count: int = 120, seed: int = 0) -> Dataset:
    """Make images of three classes: bright bars that lie, stand, or are missing, on noise."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 80, (count, *shape), dtype=np.uint8)
    y = np.arange(count) % 3
    for image, label in zip(x, y, strict=True):
        at = rng.integers(3, 15)
        if label == 0:
            image[at : at + 2] = 250
        elif label == 1:
            image[:, at : at + 2] = 250
    return Dataset.from_arrays(x, y, classes=("lying", "standing", "none"), name="bars")


def run(folder: Path, data: Dataset, recipe: Recipe = SMALL) -> Pretrained:
    return pretrain(data, out=folder / "bars.onnx", recipe=recipe, device="cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pretrained:
    """Pre-train once for all tests that only look at the result."""
    about = About(data="Bars.", licence="CC0", command="bristle pretrain bars.npz", transfer="Bars again")
    folder = tmp_path_factory.mktemp("made")
    transfer = bars(seed=1)
    return pretrain(bars(), out=folder / "bars.onnx", recipe=SMALL, device="cpu", transfer=transfer, about=about)


def test_the_network_learns_and_its_features_carry_over(made: Pretrained) -> None:
    assert made.accuracy > 0.9
    assert len(made.history) == SMALL.epochs
    assert made.history[-1].loss < made.history[0].loss
    assert made.transfer is not None
    assert min(made.transfer.whole, made.transfer.pooled, made.transfer.mini_batches) > 0.9
    assert made.transfer.alone > 0.5


def test_the_backbone_takes_stored_images_and_its_features_have_the_scale_that_heads_learn_at(made: Pretrained) -> None:
    backbone = OnnxBackbone.load(made.backbone)
    assert (backbone.digest, backbone.features, backbone.input_shape) == (made.digest, 200, (20, 20))
    assert np.sqrt(np.mean(backbone(bars().x_train) ** 2)) == pytest.approx(1, abs=0.1)
    onnx.checker.check_model(onnx.load(made.backbone), full_check=True)


def test_the_whole_network_is_written_as_a_classifier(made: Pretrained) -> None:
    session = onnxruntime.InferenceSession(made.classifier)
    data = bars()
    logits = session.run(["logits"], {"images": data.x_test})[0]
    assert (logits.argmax(axis=1) == data.y_test).mean() == made.accuracy
    names = session.get_modelmeta().custom_metadata_map["classes"]
    assert tuple(json.loads(names)) == data.classes


def test_the_card_says_what_was_made(made: Pretrained) -> None:
    card = made.card.read_text()
    assert made.transfer is not None
    for fact in (made.digest, "Bars.", "CC0", "bristle pretrain bars.npz", "Bars again", "learning rate | 0.02"):
        assert fact in card
    for figure in (made.accuracy, made.transfer.pooled, made.transfer.alone, made.history[-1].validation):
        assert f"{figure:.2%}" in card


class StoppedError(Exception):
    """Stands for a power cut."""


@pytest.mark.parametrize("after", [(1, 3), (2, 1), (3, 4)])
def test_a_stopped_run_goes_on_to_the_same_result(tmp_path: Path, made: Pretrained, after: tuple[int, int]) -> None:
    def stop(at: EpochProgress) -> None:
        if (at.epoch, at.batch) == after:
            raise StoppedError

    out = tmp_path / "bars.onnx"
    with pytest.raises(StoppedError):
        pretrain(bars(), out=out, recipe=SMALL, device="cpu", progress=stop)
    assert not out.exists()
    seen: list[EpochProgress] = []
    resumed = pretrain(bars(), out=out, recipe=SMALL, device="cpu", progress=seen.append)
    assert seen[0].epoch == after[0]  # what was trained before the last checkpoint is not trained again
    assert (seen[-1].epoch, seen[-1].finished) == (3, resumed.history[-1])
    assert (resumed.digest, resumed.history) == (made.digest, made.history)


def test_without_resuming_a_run_starts_anew(tmp_path: Path, made: Pretrained) -> None:
    out, folder = tmp_path / "bars.onnx", tmp_path / "kept"
    pretrain(bars(), out=out, recipe=SMALL, device="cpu", checkpoints=folder)
    assert [path.name for path in folder.iterdir()] == ["checkpoint.npz"]
    seen: list[EpochProgress] = []
    again = pretrain(
        bars(), out=out, recipe=SMALL, device="cpu", checkpoints=folder, resume=False, progress=seen.append
    )
    assert seen[0].epoch == 1
    assert again.digest == made.digest


def test_a_seed_is_another_run(tmp_path: Path, made: Pretrained) -> None:
    other = pretrain(bars(), out=tmp_path / "bars.onnx", recipe=replace(SMALL, epochs=1), seed=1, device="cpu")
    assert other.digest != made.digest
    with pytest.raises(ValueError, match=r"checkpoint\.npz belongs to another run \(different: recipe, seed\)"):
        pretrain(bars(), out=tmp_path / "bars.onnx", recipe=SMALL, device="cpu")


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bars-checkpoints" / "checkpoint.npz"
    path.parent.mkdir()
    path.write_bytes(b"PK not really")
    with pytest.raises(ValueError, match=r"checkpoint\.npz is damaged .*delete it, or start without resuming"):
        run(tmp_path, bars())


@pytest.mark.parametrize(("shape", "features"), [((20, 31, 3), 50 * 2 * 4), ((28, 28, 1), 800), ((16, 16), 50)])
def test_images_of_other_sizes_and_in_colour_work_too(tmp_path: Path, shape: tuple[int, ...], features: int) -> None:
    data = bars(shape=shape, count=45)
    backbone = OnnxBackbone.load(run(tmp_path, data, replace(SMALL, epochs=1)).backbone)
    assert (backbone.input_shape, backbone.features) == (shape, features)
    assert backbone(data.x_test).shape == (9, features)


def test_images_of_floats_work_too(tmp_path: Path) -> None:
    data = bars(count=45)
    floats = Dataset(data.x_train / 255, data.y_train, data.x_test / 255, data.y_test, classes=data.classes)
    backbone = OnnxBackbone.load(run(tmp_path, floats, replace(SMALL, epochs=1)).backbone)
    assert backbone.input_dtype == "float32"
    assert backbone(floats.x_test).shape == (9, 200)


def test_what_cannot_be_trained_says_why_before_any_training(tmp_path: Path) -> None:
    data = bars(count=45)
    with pytest.raises(ValueError, match=r"bars: images of 15 x 20 pixels are too small .* at least 16"):
        run(tmp_path, replace(data, x_train=data.x_train[:, :15], x_test=data.x_test[:, :15]))
    with pytest.raises(ValueError, match="bars: images are uint8 or float32, not int64"):
        run(tmp_path, replace(data, x_train=data.x_train.astype(np.int64), x_test=data.x_test))
    with pytest.raises(ValueError, match=r"bars: images have shape .* not \[400\]"):
        run(tmp_path, replace(data, x_train=data.x_train.reshape(-1, 400), x_test=data.x_test.reshape(-1, 400)))
    with pytest.raises(ValueError, match="bars: a colour channel has the same value in every image"):
        run(tmp_path, replace(data, x_train=data.x_train * 0))
    with pytest.raises(ValueError, match="bars: there are no test samples"):
        run(tmp_path, replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0]))
    with pytest.raises(ValueError, match=r"name it bars\.onnx, not bars\.pt"):
        pretrain(data, out=tmp_path / "bars.pt")
    with pytest.raises(ValueError, match=r"\[28, 28\], bars of \[20, 20\]"):
        pretrain(data, out=tmp_path / "b.onnx", transfer=bars(shape=(28, 28)))
    with pytest.raises(ValueError, match="a class has 12 training samples"):
        pretrain(data, out=tmp_path / "b.onnx", transfer=data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("width", 0), ("epochs", 0), ("batch", 0), ("dropout", 1.0), ("validation", -0.1), ("learning_rate", 0.0)],
)
def test_a_recipe_that_makes_no_sense_is_refused(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        replace(SMALL, **{option: value})  # type: ignore[arg-type]


def test_divergence_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"training diverged in epoch 1 .* lower the learning rate"):
        run(tmp_path, bars(count=45), replace(SMALL, learning_rate=1e30))


def test_without_torch_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import bristle.backbones.pretrain"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"pre-training needs torch: {to_install('pretrain')}")
