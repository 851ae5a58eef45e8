"""Runs, one run and doubts as lines.  (pure)"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trioagent.cli.ending import Invocation
from trioagent.cli.lines import (
    STATUS_STYLES,
    Line,
    Span,
    block,
    counted,
    date_and_time,
    duration,
    heading,
    table,
)
from trioagent.cli.safe import one_line
from trioagent.cli.timeline import Timeline, timeline_lines
from trioagent.journal import Doubt, RunSummary, View
from trioagent.messages import AssistantMessage, Message, SystemMessage, ToolMessage, Usage

TEXT_SHOWN = 600
"""Characters of a message that are shown, unless it is the answer or all is asked for."""


def runs_lines(runs: Iterable[RunSummary]) -> list[Line]:
    """The list of runs, one a line."""
    head: list[Span] = [
        (title, "bold") for title in ("RUN", "STATUS", "STEPS", "STARTED", "LAST RECORD")
    ]
    rows = [head]
    for run in runs:
        rows.append(
            [
                (run.run_id, ""),
                _status(run.status),
                (str(run.steps), ""),
                (date_and_time(run.started_at), ""),
                (date_and_time(run.changed_at), ""),
            ]
        )
    return table(rows)


def run_lines(
    view: View, made: Timeline, commands: Sequence[tuple[str, str]], *, full: bool = False
) -> list[Line]:
    """One run: its timeline, what was said, what it used, how it stands, what to do next."""
    lines = [[("run ", ""), (view.run_id, "bold")], *_origin(view), [("", "")]]
    lines += timeline_lines(made)
    if view.transcript:
        lines += [[("", "")], heading("transcript"), *transcript_lines(view.transcript, full)]
    lines += [[("", "")], *_standing(view)]
    for why, command in commands:
        lines += [[(f"  {why}:", "dim")], [(f"    {command}", "bold")]]
    return lines


def _origin(view: View) -> list[Line]:
    """Where a run comes from, if not from itself."""
    told = []
    if view.forked_from:
        told.append(f"forked from {view.forked_from} at turn {view.at_turn}")
    if view.follows:
        told.append(f"follows {view.follows}")
    if view.imported:
        told.append("imported, and read-only until it is resumed")
    return [[(f"  {text}", "dim")] for text in told]


def _standing(view: View) -> list[Line]:
    held = duration(round(view.seconds * 1000))
    lines: list[Line] = [
        [("usage   ", ""), (usage_text(view.usage), "")],
        [("held    ", ""), (f"{held} in {counted(view.epoch, 'session')}", "")],
        [("status  ", ""), _status(view.status)],
    ]
    lines += [[("  in doubt  ", "bold red"), (step, "")] for step in view.doubts]
    for pending in view.pending:
        call = one_line(f"{pending.call.name} {pending.call.arguments}", TEXT_SHOWN)
        reason = one_line(pending.reason, TEXT_SHOWN)
        lines.append([("  waits  ", "yellow"), (f"{pending.marker}  {call}  ({reason})", "")])
    if view.stopped is not None and view.stopped.error_type:
        text = f"{view.stopped.error_type}: {view.stopped.message}"
        lines.append([("  because  ", "dim"), (one_line(text, TEXT_SHOWN), "")])
    return lines


def usage_text(usage: Usage) -> str:
    """Tokens in words, those that are none left out."""
    text = f"{usage.input_tokens} input and {usage.output_tokens} output tokens"
    more = {
        "read from the cache": usage.cache_read_tokens,
        "written to the cache": usage.cache_write_tokens,
        "reasoning": usage.reasoning_tokens,
    }
    told = [f"{number} {what}" for what, number in more.items() if number]
    return f"{text} ({', '.join(told)})" if told else text


def transcript_lines(transcript: Sequence[Message], full: bool) -> list[Line]:
    """What was said, each message with who says it; long ones are cut, the last one is not."""
    lines: list[Line] = []
    for message in transcript:
        limit = None if full or message is transcript[-1] else TEXT_SHOWN
        text = message.text
        match message:
            case SystemMessage():
                who = "system"
            case AssistantMessage():
                who = "assistant"
            case ToolMessage():
                who = f"tool {message.name} {message.outcome}"
            case _:
                who = "user"
        lines.append([(f"  {who}", "cyan")])
        if text:
            lines += block(text, indent="    ", limit=limit)
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                arguments = one_line(call.arguments, limit)
                lines.append([("    calls ", "dim"), (call.name, "bold"), (f" {arguments}", "")])
    return lines


def doubt_lines(doubts: Iterable[Doubt], invocation: Invocation) -> list[Line]:
    """Each doubt with what is known of it, and the commands that settle it."""
    lines: list[Line] = []
    for doubt in doubts:
        resolve = ("resolve", doubt.run_id, doubt.step)
        applied = invocation.command(*resolve, "--applied-text", "RESULT")
        not_applied = invocation.command(*resolve, "--not-applied", "--by", "NAME")
        lines.append([(doubt.run_id, "bold"), ("  ", ""), (doubt.step, "bold red")])
        began = f"  begun   {date_and_time(doubt.began_at)}, attempt {doubt.attempt}"
        lines.append([(began, "")])
        if doubt.call is not None:
            call = one_line(f"{doubt.call.name} {doubt.call.arguments}", TEXT_SHOWN)
            lines.append([(f"  call    {call}", "")])
        lines.append([(f"  key     {doubt.key}", "")])
        lines += [[("  if it took effect:", "dim")], [(f"    {applied}", "bold")]]
        lines += [[("  if it did not:", "dim")], [(f"    {not_applied}", "bold")]]
    return lines


def _status(status: str) -> Span:
    return status.replace("_", " "), STATUS_STYLES.get(status, "")
