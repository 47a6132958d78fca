"""Which machines are avoided, from what run directories say."""

from scalevec.orchestrator.attempts.retry_policy import NodeWatch


def ran(host):
    return {"state": "running", "host": host, "attempt": 1}


def fault(cause, **details):
    return {"state": "pending", "cause": cause, **details}


def watch(*histories):
    actual = NodeWatch()
    for position, events in enumerate(histories):
        actual.learn(f"trial {position}", events)
    return actual


def test_two_trials_that_died_on_a_machine_make_it_bad():
    actual = watch([ran("a"), fault("killed")], [ran("a"), fault("node_failure")], [ran("b")])
    assert actual.bad == ("a",)


def test_one_trial_that_dies_often_says_nothing_of_the_machine():
    assert watch([ran("a"), fault("killed"), ran("a"), fault("killed")], [ran("b")]).bad == ()


def test_faults_of_the_trial_are_not_the_machines():
    history = [ran("a"), fault("out_of_memory"), ran("a"), fault("error", error="KeyError: 'x'")]
    assert watch(history, history, history, [ran("b")]).bad == ()


def test_a_broken_gpu_is_the_machines():
    history = [ran("a"), fault("error", error="AcceleratorError: CUDA error: uncorrectable ECC error")]
    assert watch(history, history, [ran("b")]).bad == ("a",)


def test_memory_that_cuda_itself_lacks_is_not_the_machines():
    history = [ran("a"), fault("out_of_memory", error="AcceleratorError: CUDA error: out of memory")]
    assert watch(history, history, [ran("b")]).bad == ()


def test_the_node_that_the_executor_names_counts():
    history = [fault("node_failure", node="a")]
    assert watch(history, history, [ran("b")]).bad == ("a",)


def test_never_more_than_half_of_the_machines_are_avoided():
    histories = [[ran(host), fault("killed")] for host in "aabbcc"]
    assert len(watch(*histories).bad) == 1


def test_learning_the_same_again_changes_nothing():
    actual = watch([ran("a"), fault("killed")], [ran("b")])
    for _ in range(3):
        actual.learn("trial 0", [ran("a"), fault("killed")])
    assert actual.bad == ()
