"""Enrich the sample and print a table of its rollouts: `python -m rollfold.sample`."""

from rollfold import enrich_run_result
from rollfold.sample import CAPTURES, rollouts

_COLUMNS = ("rollout", "reward", "calls", "turns", "tokens", "gaps")


def main() -> None:
    """Print one line a rollout."""
    lines: list[tuple[str, ...]] = [_COLUMNS]
    for row, result in rollouts():
        enrich_run_result(row, result, capture_dirs=[CAPTURES], observability_enabled=True)
        capture, trajectory = result["ng_model_call_capture"], result["ng_trajectory"]
        gaps = [gap["code"] for gap in trajectory["gaps"]]
        cells = (
            trajectory["rollout_id"],
            result["reward"],
            capture["metrics"]["num_calls"],
            len(trajectory["turns"]),
            capture["metrics"]["tokens_total"],
            ", ".join(gaps) or "-",
        )
        lines.append(tuple(str(cell) for cell in cells))
    widths = [max(len(line[at]) for line in lines) for at in range(len(_COLUMNS))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())  # noqa: T201 -- a command's output


if __name__ == "__main__":
    main()
