OLD = {
    "ingest_dataset": "ingest",
    "write_data_card": "data_card",
    "remove_leaks": "control_leaks",
    "warm_start_policy": "warm_start",
    "evaluate_agent": "evaluate",
    "check_headroom": "preflight",
    "write_claims": "claims",
    "write_report": "report_page",
    "write_timings": "timings",
    "measure_credit_quality": "credit_quality",
    "try_real_model": "smoke_real",
}
import dataclasses


def shim(stages):
    out = {}
    for n, s in stages.items():
        old = OLD.get(n) or (n.removeprefix("write_") if n.startswith("write_") else n)
        call = (
            f"cdpr.stages.{old}:run"
            if n != "train_policy"
            else (lambda st: "cdpr.stages.train_verl:run" if st.training.engine == "verl" else "cdpr.stages.train:run")
        )
        out[n] = dataclasses.replace(s, call=call)
    return out
