"""SentenceTransformerTrainer on a bag-of-words model made here, with a loss of in-batch negatives."""

import tempfile

import datasets
import tokenizers
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import Dense, StaticEmbedding

from subject import STEPS, WORLD, Subject, main

ROWS, BATCH, WORDS = 96, 24, 60


def pairs():
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


def trained(**settings):
    model = model_of()
    arguments = SentenceTransformerTrainingArguments(
        output_dir=tempfile.gettempdir(), per_device_train_batch_size=BATCH // WORLD, max_steps=STEPS, use_cpu=True, save_strategy="no", report_to="none",
        logging_strategy="no", disable_tqdm=True, learning_rate=1e-2, lr_scheduler_type="constant", dataloader_pin_memory=False)  # fmt: skip
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs(), loss=MultipleNegativesRankingLoss(model, **settings)).train()


SUBJECTS = [
    Subject("MultipleNegativesRankingLoss, gather_across_devices", trained, {"gather_across_devices": True}),
    Subject("MultipleNegativesRankingLoss", trained, {}, {}, ("local-negatives",), 0, "sentence-transformers#2831"),
]
if __name__ == "__main__":
    main(SUBJECTS)
