r"""Reward functions for TRL's trainers. hone runs the file unmodified.

  hone reward --reward "{kind = 'python', path = 'examples/reward_python/reward.py', function = 'same_number'}" \
      --in examples/rows.jsonl --json
"""
import asyncio
import re


def text_of(completion):
    """A completion is a text or, in a conversation, a list of one message."""
    return completion if isinstance(completion, str) else completion[0]["content"]


def same_number(prompts, completions, answer, **columns):
    """1 if the completion's last number is the answer; None (no reward) if the answer is not a number."""
    scores = []
    for completion, wanted in zip(completions, answer):
        numbers = re.findall(r"-?\d+(?:\.\d+)?", text_of(completion).replace(",", ""))
        try:
            scores.append(float(bool(numbers) and float(numbers[-1]) == float(wanted)))
        except ValueError:
            scores.append(None)
    return scores


async def brevity(completions, **columns):
    """1 for an empty completion, falling to 0 at 200 characters. A coroutine, as for a call of a service."""
    await asyncio.sleep(0)
    return [max(0.0, 1 - len(text_of(completion)) / 200) for completion in completions]
