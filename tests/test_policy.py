"""The embedded model is what the README says, and any other model is loaded safely."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM

from support.policy import (
    INSTRUCTION,
    TINY,
    PolicyError,
    build_tokenizer,
    check_model_name,
    encode_prompt,
    load_policy,
    profile,
)


def test_the_shipped_weights_have_the_profile_that_makes_collapse_visible(tiny):
    found = profile(tiny)
    symbols, words, givens, command, story, asked_first = found["by_phrasing"]
    assert min(symbols, givens, command) >= 0.7
    assert words <= 0.15 and max(story, asked_first) <= 0.4
    assert found["boxed"] >= 0.95, "so that a gain is not one of format"
    assert 0.6 <= found["acr"] <= 0.75
    assert found["acr_all_wrong"] >= 0.1 and found["acr_all_right"] >= 0.1


def test_the_embedded_model_is_small_and_stored_as_bfloat16_safetensors(tiny):
    weights = TINY / "model.safetensors"
    assert weights.stat().st_size <= 2_000_000
    assert {t.dtype for t in load_file(weights).values()} == {torch.bfloat16}
    assert {p.dtype for p in tiny.model.parameters()} == {torch.float32}
    assert 700_000 < tiny.num_parameters < 900_000


def test_the_tokenizer_is_the_one_that_the_task_builds_and_gives_text_back_exactly(tiny):
    assert build_tokenizer().get_vocab() == tiny.tokenizer.get_vocab()
    for text in ("What is forty-two minus 7?", "\\boxed{105}", "Given: x = 4, y = 15. Find x * y."):
        ids = tiny.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tiny.tokenizer.unk_token_id not in ids
        assert tiny.tokenizer.decode(ids) == text


# ------------------------------------------------------------------ prompts


class Template:
    """A stand-in tokenizer: characters are tokens, 1 is the start token."""

    bos_token_id = 1

    def __init__(self, chat_template, adds_start):
        self.chat_template, self.adds_start = chat_template, adds_start

    def __call__(self, text, add_special_tokens=True):
        ids = [1 if c == "^" else ord(c) for c in text]
        return {"input_ids": [1] * (self.adds_start and add_special_tokens) + ids}

    def apply_chat_template(self, turns, tokenize, add_generation_prompt, enable_thinking):
        assert not tokenize and add_generation_prompt
        body = "".join(f"[{t['role']}]{t['content']}" for t in turns)
        return self.chat_template + body + "[assistant]" + ("" if enable_thinking else "<no think>")

    def text(self, ids):
        return "".join("^" if i == 1 else chr(i) for i in ids)


@pytest.mark.parametrize(
    "written, adds_start, starts",
    [("^", True, 1), ("", True, 1), ("^", False, 1), ("", False, 0)],
    ids=["both write one", "tokenizer only", "template only", "a model without one"],
)
def test_a_prompt_has_one_start_token_if_the_model_has_one(written, adds_start, starts):
    tokenizer = Template(written + "<chat>", adds_start)
    assert encode_prompt(tokenizer, "q?").count(1) == starts


def test_the_instruction_stands_in_every_prompt_and_thinking_is_off_unless_asked_for():
    tokenizer = Template("<chat>", False)
    text = tokenizer.text(encode_prompt(tokenizer, "q?"))
    assert text == f"<chat>[user]q?\n{INSTRUCTION}[assistant]<no think>"
    assert not tokenizer.text(encode_prompt(tokenizer, "q?", thinking=True)).endswith("<no think>")


def test_a_model_without_chat_template_gets_a_plain_one_with_examples_before_it():
    tokenizer = Template(None, True)
    text = tokenizer.text(encode_prompt(tokenizer, "q?", examples=1))
    assert text.startswith("^Question: What is 3 + 4?") and "Answer: 3 + 4 = \\boxed{7}\n" in text
    assert text.endswith(f"Question: q?\n{INSTRUCTION}\nAnswer:")


# ------------------------------------------------------------------ other models


@pytest.fixture
def gpt2_folder(tmp_path):
    """A small model of another kind: learned positions, dropout, no pad token, two end ids."""
    folder = tmp_path / "gpt2"
    shutil.copytree(TINY, folder)
    (folder / "model.safetensors").unlink()
    for name in ("chat_template.jinja", "generation_config.json"):
        (folder / name).unlink(missing_ok=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("pad_token", None)
    settings.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    vocabulary = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=vocabulary, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.3,
                   embd_pdrop=0.3, attn_pdrop=0.3, bos_token_id=1, eos_token_id=2)
    )  # fmt: skip
    model.generation_config.eos_token_id = [2, 7]
    model.save_pretrained(folder)
    return folder


def test_a_model_without_pad_token_and_chat_template_is_loaded_with_all_its_end_ids(gpt2_folder):
    policy = load_policy(str(gpt2_folder))
    assert policy.end_ids == [2, 7] and policy.pad_id == 2
    assert policy.encode("What is 1 + 1?")
    policy.model.train()
    ids = torch.tensor([[1, 5, 6]])
    assert torch.equal(policy.model(ids).logits, policy.model(ids).logits), "dropout is off"


def test_such_a_model_trains(gpt2_folder, tmp_path):
    import train

    options = f"--algo grpo --model {gpt2_folder} --steps 1 --prompts-per-step 2 --group-size 2"
    options += f" --max-new-tokens 4 --eval-questions 2 --out {tmp_path / 'run'}"
    assert train.main(options.split()) == 0


def test_attention_is_torchs_own_and_a_model_without_attention_trains_too(tiny, tmp_path):
    import train

    assert tiny.model.config._attn_implementation == "sdpa"
    folder = tmp_path / "mamba"
    shutil.copytree(TINY, folder)
    (folder / "model.safetensors").unlink()
    vocabulary = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    MambaForCausalLM(
        MambaConfig(vocab_size=vocabulary, hidden_size=16, num_hidden_layers=1, eos_token_id=2)
    ).save_pretrained(folder)
    options = f"--algo avspo --model {folder} --steps 1 --prompts-per-step 2 --group-size 2"
    options += f" --max-new-tokens 4 --eval-questions 2 --out {tmp_path / 'run'}"
    assert train.main(options.split()) == 0


SMALL = dict(vocab_size=600, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2)


def options_of(folder, out):
    return (f"--algo grpo --model {folder} --steps 1 --prompts-per-step 2 --group-size 2 "
            f"--max-new-tokens 60 --eval-questions 2 --out {out}").split()  # fmt: skip


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(n_positions=40), "has 40 positions, and a prompt of"),
        (dict(vocab_size=20), "ids that its 20 rows lack"),
    ],
)
def test_a_model_that_cannot_take_the_prompts_is_refused(
    gpt2_folder, tmp_path, capsys, change, said
):
    import train

    config = GPT2Config(**SMALL | change)
    GPT2LMHeadModel(config).save_pretrained(gpt2_folder)
    capsys.readouterr()
    assert train.main(options_of(gpt2_folder, tmp_path / "run")) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1, err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("template", ["{% for", "{{ raise_exception('no') }}", "{# nothing #}"])
def test_a_chat_template_that_fails_is_refused(gpt2_folder, template):
    (gpt2_folder / "chat_template.jinja").write_text(template)
    with pytest.raises(PolicyError, match="its chat template (fails|makes empty)"):
        load_policy(str(gpt2_folder))


def test_weights_in_other_formats_are_not_read(tmp_path):
    shutil.copytree(TINY, tmp_path / "m")
    (tmp_path / "m/model.safetensors").unlink()
    (tmp_path / "m/pytorch_model.bin").write_bytes(b"a pickle may run code")
    with pytest.raises(PolicyError, match="safetensors"):
        load_policy(str(tmp_path / "m"))


def test_damaged_weights_end_in_one_line(tmp_path):
    shutil.copytree(TINY, tmp_path / "m")
    (tmp_path / "m/model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(PolicyError) as caught:
        load_policy(str(tmp_path / "m"))
    assert "cannot be loaded" in str(caught.value) and "\n" not in str(caught.value)


def test_a_model_with_missing_weights_is_not_trained_on_random_ones(tmp_path):
    from safetensors.torch import save_file

    shutil.copytree(TINY, tmp_path / "m")
    weights = load_file(tmp_path / "m/model.safetensors")
    weights = {k: v for k, v in weights.items() if "layers.2.mlp" not in k}
    save_file(weights, tmp_path / "m/model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PolicyError, match="lack model.layers.2.mlp"):
        load_policy(str(tmp_path / "m"))


@pytest.mark.parametrize("name", ["no-such", "/no/such", "./a/b", "a/b/c", "~/m", "org/"])
def test_a_name_that_cannot_be_a_model_is_refused(name):
    with pytest.raises(PolicyError, match="neither"):
        check_model_name(name)


def test_a_folder_without_config_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="config.json"):
        check_model_name(str(tmp_path))


def test_a_hub_id_that_cannot_be_fetched_names_the_way_out():
    with pytest.raises(PolicyError, match="give --model a folder"):
        load_policy("no-such-organisation/no-such-model")


def test_weights_move_at_a_learning_rate_of_1e_6(tiny):
    """Float32 master weights: in bfloat16 the update would be rounded away."""
    policy = load_policy("tiny")
    before = [p.detach().clone() for p in policy.model.parameters()]
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-6)
    ids = torch.tensor([policy.encode("What is 1 + 1?")])
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            loss = policy.model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    moved = sum(int((a != b).sum()) for a, b in zip(before, policy.model.parameters()))
    used = sum(int((p.grad != 0).sum()) for p in policy.model.parameters())
    assert moved > 0.9 * used
    rounded = sum(
        int((a.bfloat16() != b.bfloat16()).sum()) for a, b in zip(before, policy.model.parameters())
    )
    assert rounded < 0.2 * moved
