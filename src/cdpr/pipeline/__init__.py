"""The pipeline: which jobs there are, what each depends on, when it must run again, and the record of its run.

Nothing here imports numerical libraries; reading the whole workflow takes well under a second.
"""
