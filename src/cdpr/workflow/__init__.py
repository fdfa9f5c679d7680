"""Which jobs there are, what each depends on, and when it must run again.

Nothing here imports numerical libraries; reading the whole workflow takes well under a second.
"""
