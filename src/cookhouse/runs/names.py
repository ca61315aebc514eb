"""Names of what lies in a run folder, and where runs lie."""

from pathlib import Path

RUNS_FOLDER = Path("runs")
"""Where a run without a `log_path` has its folder, and where a run is looked for by name."""

CONFIG_FILE = "config.json"
RUN_FILE = "run.json"
LOCK_FILE = "run.lock"
DATA_FILE = "data.json"
METRICS_FILE = "metrics.jsonl"
CHECKPOINTS_FILE = "checkpoints.jsonl"
LOG_FILE = "logs.log"
TRACE_FILE = "trace.json"
RESULT_FILE = "result.json"
REPORT_FILE = "report.html"
REFERENCE_FILE = "reference.json"
"""What the answers of a run over preferences are compared with."""
REFERENCE_LOGPROBS_FILE = "reference_logprobs.jsonl"
"""What that said of them, by a digest of their tokens and weights."""
TEACHER_FILE = "teacher.json"
"""What the teachers of a run answered to its held-out problems themselves."""
TEACHER_SAMPLES_FILE = "teacher_samples.jsonl"
"""What a teacher said, to be trained on."""
SAMPLES_FOLDER = "samples"
ROLLOUTS_FOLDER = "rollouts"
EVALUATIONS_FOLDER = "evaluations"
