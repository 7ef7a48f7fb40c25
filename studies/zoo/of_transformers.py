"""Transformers' Trainer on small causal models with random weights; rows of unequal length, padded to the longest of their batch."""

import tempfile

import lockstep_probe
import torch
import transformers

from subject import RANK, STEPS, WORLD, Subject, main

ROWS, BATCH, VOCABULARY = 96, 24, 48


def _rows():
    draw = torch.Generator().manual_seed(9)
    rows = []
    for i in range(ROWS):
        # Short rows and long ones are not spread evenly: the ranks' counts of tokens differ.
        length = int(torch.randint(3, 8, (1,), generator=draw)) + (12 if i % 5 == 0 else 0)
        tokens = torch.randint(1, VOCABULARY, (length,), generator=draw).tolist()
        rows.append({"input_ids": tokens})
    return rows


def collate(rows):
    longest = max(len(row["input_ids"]) for row in rows)

    def padded(row, filler):
        return row["input_ids"] + [filler] * (longest - len(row["input_ids"]))

    return {
        "input_ids": torch.tensor([padded(row, 0) for row in rows]),
        "labels": torch.tensor([padded(row, -100) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows]),
    }


def gpt2():
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=24, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
                                     attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=False)  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama():
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                                      num_key_value_heads=1, max_position_embeddings=24, use_cache=False)  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def gpt2_classifier():
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=24, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
                                     attn_pdrop=0.0, num_labels=3, pad_token_id=0, use_cache=False)  # fmt: skip
    return transformers.GPT2ForSequenceClassification(config)


def llama_classifier():
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                                      num_key_value_heads=1, max_position_embeddings=24, num_labels=3, pad_token_id=0, use_cache=False)  # fmt: skip
    return transformers.LlamaForSequenceClassification(config)


def bert_classifier():
    config = transformers.BertConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                                     max_position_embeddings=24, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def collate_classes(rows):
    """As `collate`, with one label a row: of three classes."""
    batch = collate(rows)
    batch["labels"] = batch["input_ids"].sum(1) % 3
    return batch


def mean_of_all(outputs, labels, num_items_in_batch=None):
    """A `compute_loss_func` as it is often written: the mean over the micro-step's own tokens, whatever the Trainer passes."""
    logits = outputs["logits"][:, :-1].reshape(-1, VOCABULARY)
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:].reshape(-1), ignore_index=-100)


def sum_over_all(outputs, labels, num_items_in_batch=None):
    logits = outputs["logits"][:, :-1].reshape(-1, VOCABULARY)
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:].reshape(-1), ignore_index=-100, reduction="sum") / num_items_in_batch


def one_left_out(outputs, labels, num_items_in_batch=None):
    left = RANK == WORLD - 1 > 0
    fewer = torch.cat([labels[:-1], torch.full_like(labels[-1:], -100)])
    return sum_over_all(outputs, fewer if left else labels, num_items_in_batch)


def trained(make=gpt2, accumulation=1, own_loss=None, per_micro_step_mean=False, line=False, **arguments):
    torch.manual_seed(2)
    model = make()
    arguments = {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "max_grad_norm": 1.0} | arguments
    settings = transformers.TrainingArguments(
        output_dir=tempfile.gettempdir(), per_device_train_batch_size=BATCH // (WORLD * accumulation), gradient_accumulation_steps=accumulation,
        max_steps=STEPS, use_cpu=True, save_strategy="no", report_to="none", logging_strategy="no", disable_tqdm=True, seed=1,
        remove_unused_columns=False, dataloader_pin_memory=False, label_names=["labels"], **arguments)  # fmt: skip
    classifies = "Classification" in type(model).__name__
    trainer = transformers.Trainer(
        model=model, args=settings, train_dataset=_rows(), data_collator=collate_classes if classifies else collate,
        compute_loss_func=own_loss, callbacks=[lockstep_probe.transformers.Callback()] if line else [])  # fmt: skip
    if per_micro_step_mean:
        trainer.model_accepts_loss_kwargs = False  # as of a model whose forward takes no keywords of the loss
    trainer.train()


WARMUP = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 10}
WIDE, WITHOUT = {"max_grad_norm": 0.0}, {"per_micro_step_mean": True}
CLASSIFIER = {"make": gpt2_classifier} | WIDE
TIMES_WORLD, OWN_MEANS = ("loss-times-world", "gradient-times-world"), ("micro-steps-weighted-alike", "mean-of-means")
SUBJECTS = [
    Subject("Trainer, GPT-2", trained),
    Subject("Trainer, Llama", trained, {"make": llama}, {"make": llama}),
    Subject("Trainer, gradient_accumulation_steps=4", trained, {"accumulation": 4}),
    Subject("Trainer, gradient_accumulation_steps=4, max_grad_norm=0", trained, {"accumulation": 4} | WIDE, WIDE),
    Subject("Trainer, label_smoothing_factor=0.1", trained, {"label_smoothing_factor": 0.1}, {"label_smoothing_factor": 0.1}),
    Subject("Trainer, warmup_steps=10", trained, WARMUP, WARMUP),
    Subject("Trainer, compute_loss_func: sum / num_items_in_batch", trained, {"own_loss": sum_over_all}, {"own_loss": sum_over_all}),
    Subject("Trainer, average_tokens_across_devices=False", trained, {"average_tokens_across_devices": False}, {}, ("mean-of-means",), 0, "transformers#34242"),
    Subject("Trainer, model without loss keywords", trained, WITHOUT, WITHOUT, ("mean-of-means",), 0, "transformers#37766"),
    Subject("Trainer, model without loss keywords, gradient_accumulation_steps=4", trained, WITHOUT | {"accumulation": 4}, WITHOUT, OWN_MEANS, 0, "transformers#37766"),
    *(Subject(f"Trainer, {name}", trained, {"make": make} | WIDE, {"make": make} | WIDE, TIMES_WORLD, 0, "transformers#47688")
      for name, make in (("GPT2ForSequenceClassification", gpt2_classifier), ("LlamaForSequenceClassification", llama_classifier),
                         ("BertForSequenceClassification", bert_classifier))),
    Subject("Trainer, GPT2ForSequenceClassification, gradient_accumulation_steps=4", trained, CLASSIFIER | {"accumulation": 4}, CLASSIFIER,
            ("constant-factor", "accumulation-not-scaled", *TIMES_WORLD), 0, "transformers#47688"),
    Subject("Trainer, GPT2ForSequenceClassification, average_tokens_across_devices=False", trained, CLASSIFIER | {"average_tokens_across_devices": False}, CLASSIFIER),
    Subject("Trainer, compute_loss_func: mean", trained, {"own_loss": mean_of_all} | WIDE, {"own_loss": mean_of_all} | WIDE,
            ("gradient-times-world", "loss-times-world", "mean-of-means", "constant-factor")),
    Subject("Trainer with the probe's line, accumulation 4", trained, {"line": True, "accumulation": 4}, {"line": True}),
    Subject("Trainer with the probe's line, average_tokens_across_devices=False", trained, {"line": True, "average_tokens_across_devices": False},
            {"line": True}, ("mean-of-means",), 0, "transformers#34242"),
    Subject("Trainer with the probe's line, one row left out of the loss", trained, {"line": True, "own_loss": one_left_out},
            {"line": True, "own_loss": sum_over_all}, ("rows-left-out",)),
]  # fmt: skip
if __name__ == "__main__":
    main(SUBJECTS)
