"""Workloads as the global side keeps them: admitted once per request, divided, deleted, told of."""

from durable.authority.audit.messages import audit_message
from durable.authority.workloads.admission import (
    AdmissionQueue,
    Answered,
    admit_workload,
    admit_workloads,
)
from durable.authority.workloads.deciding import Ask
from durable.authority.workloads.deletion import finish_delete, finish_job, request_delete
from durable.authority.workloads.rows import (
    Admission,
    WorkloadRow,
    list_workloads,
    read_workload,
    read_workload_row,
)

__all__ = [
    "Admission",
    "AdmissionQueue",
    "Answered",
    "Ask",
    "WorkloadRow",
    "admit_workload",
    "admit_workloads",
    "audit_message",
    "finish_delete",
    "finish_job",
    "list_workloads",
    "read_workload",
    "read_workload_row",
    "request_delete",
]
