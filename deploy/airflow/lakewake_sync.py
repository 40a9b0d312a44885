"""An Airflow DAG: sync the indexes after the job that writes the table, then compare them.

A failed task may be tried again: a sync that was killed left nothing half-written.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow import DAG
from airflow.providers.standard.operators.bash import BashOperator

FOLDER, LAKEWAKE = "/var/lib/lakewake", "/opt/venv/bin/lakewake"

with DAG(
    dag_id="lakewake_sync",
    start_date=datetime(2026, 1, 1),
    schedule=timedelta(minutes=10),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
):
    sync = BashOperator(task_id="sync", bash_command=f"{LAKEWAKE} sync --quiet", cwd=FOLDER)
    verify = BashOperator(task_id="verify", bash_command=f"{LAKEWAKE} verify --quiet", cwd=FOLDER)
    sync >> verify
