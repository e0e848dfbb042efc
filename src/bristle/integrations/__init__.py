"""Bristle's rules inside other libraries: import the module of the library that you have.

`bristle.integrations.flower`, `bristle.integrations.byzfl`, `bristle.integrations.p2pfl`. None of these libraries is a
requirement of Bristle, and nothing here is imported unless asked for.
"""
