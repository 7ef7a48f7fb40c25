"""SentenceTransformerTrainer, unmodified, on a bag-of-words model made here, with losses of in-batch negatives."""

import os

import datasets
import tokenizers
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers import losses as st_losses
from sentence_transformers.models import Dense, StaticEmbedding

from subject import Subject

LIBRARY = "sentence-transformers"
ROWS, BATCH, WORDS = 96, 24, 60


def _pairs():
    draw = torch.Generator().manual_seed(13)

    def text(topic, length):
        own = torch.randint(0, 6, (length,), generator=draw) + topic % 9 * 6
        return " ".join(f"w{int(w)}" for w in own)

    lengths = torch.randint(2, 9, (ROWS, 2), generator=draw).tolist()
    return datasets.Dataset.from_dict({"anchor": [text(i, n) for i, (n, _) in enumerate(lengths)], "positive": [text(i, n) for i, (_, n) in enumerate(lengths)]})


def model_of():
    torch.manual_seed(14)
    vocabulary = {"[UNK]": 0} | {f"w{i}": i + 1 for i in range(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words = StaticEmbedding(tokenizer, embedding_weights=torch.randn(len(vocabulary), 12).numpy())
    return SentenceTransformer(modules=[words, Dense(12, 8)], device="cpu")


def trained(run, loss="MultipleNegativesRankingLoss", accumulation=1, **settings):
    model = run.begin(model_of())
    arguments = SentenceTransformerTrainingArguments(
        output_dir=os.environ["ZOO_WORK"], per_device_train_batch_size=BATCH // (run.world * accumulation), gradient_accumulation_steps=accumulation,
        max_steps=run.steps, use_cpu=True, save_strategy="no", report_to="none", logging_strategy="no", disable_tqdm=True, seed=1, learning_rate=1e-2,
        lr_scheduler_type="constant", dataloader_pin_memory=False)  # fmt: skip
    trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=_pairs(), loss=getattr(st_losses, loss)(model, **settings))
    if run.traced:
        import transformers

        class Tracing(transformers.TrainerCallback):
            def on_train_begin(self, *_, model=None, optimizer=None, **__):
                run.attach(model, optimizer)

        trainer.add_callback(Tracing())
    trainer.train()
    run.end(model)


GATHERED = {"gather_across_devices": True}
SUBJECTS = [
    Subject(LIBRARY, "MultipleNegativesRankingLoss, gather_across_devices", trained, GATHERED, layout="24 pairs; 3 × 8", lines=("0",)),
    Subject(LIBRARY, "MultipleNegativesRankingLoss", trained, expect=("local-negatives",), layout="24 pairs; 3 × 8", lines=("0",), known="sentence-transformers#2831"),
]
