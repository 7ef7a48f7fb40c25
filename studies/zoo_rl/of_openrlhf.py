"""OpenRLHF: its experience maker needs flash-attn, which is built for CUDA; where it imports, nothing is asked yet."""

from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker  # noqa: F401

SUBJECTS = []
