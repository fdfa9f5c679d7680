"""The synthetic hospital.

Reads  settings only.
Writes `<results>/raw/<data set>/`: raw files in each data set's native format, as the real ones come.
Used for every data set without a path of its own (`data.<data set>.path`).
"""


rule make_hospital:
    input:
        **inputs("make_hospital"),
    output:
        **outputs("make_hospital"),
    log:
        "<logs>/make_hospital.log",
    conda:
        "../envs/cdpr.yaml"
    threads: 2
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        **params("make_hospital"),
    shell:
        COMMAND
