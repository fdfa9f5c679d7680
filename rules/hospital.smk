"""The synthetic hospital.

Reads  settings only.
Writes `<results>/raw/<data set>/`: raw files in each data set's native format, as the real ones come.
Used for every data set without a path of its own (`data.<data set>.path`).
"""


rule make_hospital:
    output:
        mimic_iv=directory("<results>/raw/mimic_iv"),
        clinicalbench=directory("<results>/raw/clinicalbench"),
        private=directory("<results>/raw/private"),
        record="<results>/raw/run.json",
    log:
        "<logs>/make_hospital.log",
    benchmark:
        "<benchmarks>/make_hospital.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        key=plan.keyed("make_hospital"),
    shell:
        "cdpr make_hospital --key {params.key} --record {output.record}"
        " --mimic_iv {output.mimic_iv} --clinicalbench {output.clinicalbench} --private {output.private}"
        " 2>&1 | tee {log}"
