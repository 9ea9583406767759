"""Triggers that wait in the triggerer: for a process, for the queue, for a watermark.

A trigger holds no state that matters: it may be stopped and restarted anywhere, at any time. Peers that
do not answer are waited for, up to a bound that each trigger names.
"""
