"""The tests of each sentence of the specification; `test_coverage.py` checks the table.

A requirement names the heading that it stands under, says in short what is required, and lists the
tests that fail if it does not hold: of this folder, or of the contract suites that ship in
`lib.testing`. What is not built has a reason in place of tests. Signatures and defaults are held as
a whole by `test_signatures.py`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A sentence of the specification.

    Attributes:
        id: area, subject and rule.
        source: the heading that it stands under.
        says: what it requires, in short.
        tests: node ids, from the root of the repository.
        missing: why there are no tests.
    """

    id: str
    source: str
    says: str
    tests: tuple[str, ...] = ()
    missing: str = ""


HEADINGS = (
    "Record",
    "Match",
    "Hit",
    "Filter",
    "Span",
    "Score",
    "FetchPolicy",
    "FileAccess",
    "States and transitions",
    "Vector store contract",
    "Hybrid search",
    "EmbeddingIndex",
    "TenantVectorStore",
    "Store constructors",
    "Reranking",
    "Observer",
    "Trace sinks",
    "Built-in tools",
    "Server package and command line",
    "Authentication",
    "Events",
    "Errors",
    "Limits",
    "Versioning",
)

REQUIREMENTS = (
    Requirement(
        id="vector.record.fields",
        source="Record",
        says="A record is an id, a vector, a text and metadata; the last two may be left out.",
        tests=(
            "tests/spec/test_signatures.py::test_every_dataclass_has_the_fields_and_defaults_of_the_specification",
            "src/lib/testing/vector_store/records.py::RecordContract::test_a_record_comes_back_as_it_went_in",
        ),
    ),
    Requirement(
        id="vector.match.fields",
        source="Match",
        says="A match has id, score, text, metadata, and no vector unless there is one.",
        tests=(
            "tests/spec/test_signatures.py::test_every_dataclass_has_the_fields_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="vector.match.direction",
        source="Match",
        says="Cosine and dot are similarities, euclidean is a distance; best come first.",
        tests=(
            "src/lib/testing/vector_store/search.py::SearchContract::test_scores_and_their_order_are_those_of_the_metric",
        ),
    ),
    Requirement(
        id="vector.match.higher-is-better",
        source="Match",
        says="A store declares how its scores are read.",
        tests=(
            "src/lib/testing/vector_store/search.py::SearchContract::test_scores_and_their_order_are_those_of_the_metric",
            "tests/unit/vector/test_tenant_views.py::test_it_measures_as_its_store_does",
        ),
    ),
    Requirement(
        id="vector.match.not-comparable",
        source="Match",
        says="Scores of stores or metrics are not compared: hits carry the metric.",
        tests=("tests/unit/vector/test_index.py::test_hits_tell_how_to_read_their_score",),
    ),
    Requirement(
        id="vector.hit.metric",
        source="Hit",
        says="A hit names its metric and its direction.",
        tests=("tests/unit/vector/test_index.py::test_hits_tell_how_to_read_their_score",),
    ),
    Requirement(
        id="vector.hit.rrf",
        source="Hit",
        says="A hit of hybrid fusion has the metric rrf.",
        tests=("tests/unit/vector/test_index.py::test_hybrid_search_fuses_words_with_nearness",),
    ),
    Requirement(
        id="vector.filter.parse",
        source="Filter",
        says="A filter, a mapping or None becomes a filter or None.",
        tests=(
            "tests/unit/vector/filter/test_language.py::test_filters_may_stand_inside_a_mapping",
            "tests/unit/vector/filter/test_language.py::test_what_says_nothing_is_no_filter",
            "src/lib/testing/vector_store/filters.py::FilterContract::test_a_mapping_means_the_same_as_the_filter_that_it_is_parsed_to",
        ),
    ),
    Requirement(
        id="vector.filter.mapping",
        source="Filter",
        says="Mappings write equality, comparison, membership and disjunction.",
        tests=(
            "tests/unit/vector/filter/test_language.py::test_a_mapping_and_the_builder_write_the_same_filter",
            "src/lib/testing/vector_store/filters.py::FilterContract::test_a_filter_lets_through_what_its_rules_say",
        ),
    ),
    Requirement(
        id="vector.filter.builder",
        source="Filter",
        says="A field of the builder supports comparison operators.",
        tests=(
            "tests/unit/vector/filter/test_language.py::test_a_mapping_and_the_builder_write_the_same_filter",
        ),
    ),
    Requirement(
        id="vector.filter.same-everywhere",
        source="Filter",
        says="A filter means the same in every store.",
        tests=(
            "src/lib/testing/vector_store/filters.py::FilterContract::test_random_filters_let_through_what_the_reference_does",
        ),
    ),
    Requirement(
        id="vector.filter.no-silent-post-filter",
        source="Filter",
        says="A store refuses what it cannot express and never filters afterwards in silence.",
        tests=(
            "src/lib/testing/vector_store/search.py::SearchContract::test_the_filter_comes_before_the_search",
            "tests/unit/vector/filter/test_refusals.py::test_a_refusal_names_operator_field_and_way_out",
            "tests/contract/test_narrow_vector_store.py::test_a_store_that_takes_a_filter_which_it_has_to_refuse_is_caught",
        ),
    ),
    Requirement(
        id="observe.span.fields",
        source="Span",
        says="A span has the named fields; it is ok and without content by default.",
        tests=(
            "tests/spec/test_signatures.py::test_every_dataclass_has_the_fields_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="evals.score.numeric",
        source="Score",
        says="A verdict is 0 or 1, a number itself, a label nothing.",
        tests=(
            "tests/unit/evals/test_score.py::test_numbers_pass_from_one_half_on_verdicts_say_so_and_labels_do_neither",
        ),
    ),
    Requirement(
        id="evals.score.passed",
        source="Score",
        says="A verdict counts as itself, a number from one half on, a label neither way.",
        tests=(
            "tests/unit/evals/test_score.py::test_numbers_pass_from_one_half_on_verdicts_say_so_and_labels_do_neither",
        ),
    ),
    Requirement(
        id="tools.fetch.policy-fields",
        source="FetchPolicy",
        says="A policy has the named fields and limits.",
        tests=(
            "tests/spec/test_signatures.py::test_every_dataclass_has_the_fields_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="tools.fetch.strict",
        source="FetchPolicy",
        says="A strict policy reaches the listed hosts by https only.",
        tests=(
            "tests/unit/tools/builtin/fetch/test_policy.py::test_a_strict_policy_reaches_listed_hosts_by_https_only",
        ),
    ),
    Requirement(
        id="tools.files.access-fields",
        source="FileAccess",
        says="A confined view has a root, a limit, a switch for hidden names and a list of denied ones.",
        tests=(
            "tests/spec/test_signatures.py::test_every_dataclass_has_the_fields_and_defaults_of_the_specification",
            "tests/unit/tools/builtin/files/test_access.py::test_an_access_has_the_settings_of_the_specification",
        ),
    ),
    Requirement(
        id="observe.span.open",
        source="States and transitions",
        says="A span without an end is open; an open root is exported bit by bit.",
        tests=(
            "tests/unit/observe/test_observer_open_runs.py::test_an_open_run_is_exported_bit_by_bit",
            "tests/properties/test_spans.py::test_exactly_the_unfinished_work_of_a_log_has_open_spans",
        ),
    ),
    Requirement(
        id="vector.hosted.created-if-absent",
        source="States and transitions",
        says="Setup creates a hosted index only if that is wanted and it is absent.",
        tests=(
            "tests/unit/vector/stores/test_pinecone_index.py::test_a_missing_index_is_made_if_that_is_wanted_and_waited_for",
            "tests/unit/vector/stores/test_pinecone_index.py::test_a_missing_index_is_an_error_and_not_created_by_default",
        ),
    ),
    Requirement(
        id="vector.store.namespace",
        source="Vector store contract",
        says="A namespace is a wall between records.",
        tests=(
            "src/lib/testing/vector_store/records.py::RecordContract::test_a_namespace_is_a_wall",
        ),
    ),
    Requirement(
        id="vector.store.dimension",
        source="Vector store contract",
        says="After the first upsert a vector of another length is refused.",
        tests=(
            "src/lib/testing/vector_store/input.py::InputContract::test_a_vector_of_another_length_is_refused_with_both_lengths",
        ),
    ),
    Requirement(
        id="vector.store.unsupported-filter",
        source="Vector store contract",
        says="A filter that a store cannot express raises UnsupportedFilter.",
        tests=(
            "tests/unit/vector/filter/test_refusals.py::test_a_refusal_names_operator_field_and_way_out",
            "tests/unit/vector/stores/test_pinecone_records.py::test_negations_are_refused_before_any_request",
        ),
    ),
    Requirement(
        id="vector.hybrid.signature",
        source="Hybrid search",
        says="Hybrid queries take a vector and a text, and five matches are the default.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
            "src/lib/testing/vector_store/hybrid.py::HybridContract::test_bad_input_is_refused_as_in_a_plain_query",
        ),
    ),
    Requirement(
        id="vector.hybrid.reference",
        source="Hybrid search",
        says="The memory store fuses similarity with BM25 and is the reference.",
        tests=(
            "src/lib/testing/vector_store/hybrid.py::HybridContract::test_a_score_is_the_sum_of_reciprocal_ranks",
            "tests/unit/vector/stores/test_sqlite_hybrid.py::test_where_both_cut_words_alike_sqlite_ranks_as_memory_does",
        ),
    ),
    Requirement(
        id="vector.hybrid.any-word",
        source="Hybrid search",
        says="Any word of the query may match.",
        tests=(
            "src/lib/testing/vector_store/hybrid.py::HybridContract::test_any_word_may_match_whatever_its_form",
        ),
    ),
    Requirement(
        id="vector.hybrid.relational-column",
        source="Hybrid search",
        says="The relational store adds its text-search column by itself.",
        tests=(
            "tests/unit/vector/stores/test_postgres_setup.py::test_a_table_of_other_origin_is_completed_and_its_rows_are_found",
        ),
    ),
    Requirement(
        id="vector.hybrid.file-triggers",
        source="Hybrid search",
        says="The file store keeps its full-text index equal to its table.",
        tests=(
            "tests/unit/vector/stores/test_sqlite_hybrid.py::test_the_index_says_what_the_table_does_after_any_writes",
        ),
    ),
    Requirement(
        id="vector.hybrid.unavailable",
        source="Hybrid search",
        says="Without full-text support hybrid search raises HybridUnavailable.",
        tests=(
            "tests/unit/vector/stores/test_sqlite_hybrid.py::test_without_full_text_all_else_works",
            "tests/unit/vector/test_index.py::test_hybrid_search_of_a_store_without_it_is_an_error_unless_auto",
        ),
    ),
    Requirement(
        id="vector.index.signature",
        source="EmbeddingIndex",
        says="The index and its search have the named parameters.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="vector.index.filter-pushed-down",
        source="EmbeddingIndex",
        says="A filter is evaluated by the store.",
        tests=("tests/unit/vector/test_index.py::test_a_filter_is_left_to_the_store",),
    ),
    Requirement(
        id="vector.index.predicate-overfetch",
        source="EmbeddingIndex",
        says="A predicate asks for more until k survive or the store is exhausted.",
        tests=(
            "tests/unit/vector/test_index.py::test_a_predicate_search_asks_for_more_until_enough_survive",
            "tests/unit/vector/test_index.py::test_a_predicate_search_ends_when_the_store_is_exhausted",
        ),
    ),
    Requirement(
        id="vector.index.max-overfetch",
        source="EmbeddingIndex",
        says="A predicate search looks at max_overfetch candidates at most.",
        tests=(
            "tests/unit/vector/test_index.py::test_a_predicate_search_looks_at_max_overfetch_candidates_at_most",
            "tests/unit/vector/test_index.py::test_max_overfetch_bounds_the_candidates_whatever_k_is",
        ),
    ),
    Requirement(
        id="vector.index.hybrid",
        source="EmbeddingIndex",
        says="Hybrid search fuses words with similarity by reciprocal rank.",
        tests=(
            "tests/unit/vector/test_index.py::test_hybrid_search_fuses_words_with_nearness",
            "tests/unit/vector/test_fusion.py::test_a_score_is_the_sum_of_reciprocal_ranks",
        ),
    ),
    Requirement(
        id="vector.index.hybrid-default",
        source="EmbeddingIndex",
        says="A search without a mode takes that of the index.",
        tests=(
            "tests/unit/vector/test_index.py::test_the_search_may_differ_from_the_setting_of_the_index",
        ),
    ),
    Requirement(
        id="vector.tenant.namespace",
        source="TenantVectorStore",
        says="Every call is pinned to the namespace of prefix and tenant.",
        tests=(
            "tests/unit/vector/test_tenant_claims.py::test_a_record_is_stored_in_the_tenants_namespace_and_says_whose_it_is",
        ),
    ),
    Requirement(
        id="vector.tenant.or-cannot-escape",
        source="TenantVectorStore",
        says="The tenant is required outside the caller's filter, so a disjunction reaches no other tenant's rows.",
        tests=(
            "tests/unit/vector/test_tenant_walls.py::test_what_others_have_put_into_the_namespace_is_as_if_it_were_not_there",
            "tests/contract/test_vector_stores.py::TestVectorStores::test_no_tenant_reaches_what_another_one_has",
        ),
    ),
    Requirement(
        id="vector.tenant.record-carries-tenant",
        source="TenantVectorStore",
        says="Every record carries its tenant in its metadata.",
        tests=(
            "tests/unit/vector/test_tenant_claims.py::test_a_record_is_stored_in_the_tenants_namespace_and_says_whose_it_is",
        ),
    ),
    Requirement(
        id="vector.tenant.foreign-namespace",
        source="TenantVectorStore",
        says="Another namespace is an error.",
        tests=(
            "tests/unit/vector/test_tenant_walls.py::test_another_namespace_is_refused_before_any_request",
        ),
    ),
    Requirement(
        id="vector.tenant.foreign-claim",
        source="TenantVectorStore",
        says="A record that claims another tenant is an error.",
        tests=(
            "tests/unit/vector/test_tenant_claims.py::test_a_record_that_claims_another_tenant_is_refused_before_any_request",
        ),
    ),
    Requirement(
        id="vector.tenant.sibling",
        source="TenantVectorStore",
        says="A sibling is the same tenant's view of a suffixed namespace, behind both walls.",
        tests=(
            "tests/unit/vector/test_tenant_names.py::test_siblings_are_apart_and_behind_the_same_walls",
        ),
    ),
    Requirement(
        id="vector.tenant.erase",
        source="TenantVectorStore",
        says="Erasing removes everything of this tenant and nothing else.",
        tests=(
            "tests/unit/vector/test_tenant_names.py::test_erase_removes_the_namespace_and_all_siblings_of_one_tenant_only",
        ),
    ),
    Requirement(
        id="vector.stores.signatures",
        source="Store constructors",
        says="Every store is made with the named parameters and defaults.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="vector.stores.metric",
        source="Store constructors",
        says="Cosine is the default metric; dot and euclidean are the others.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
            "src/lib/testing/vector_store/search.py::SearchContract::test_scores_and_their_order_are_those_of_the_metric",
        ),
    ),
    Requirement(
        id="vector.hosted.setup",
        source="Store constructors",
        says="Setup of the hosted store needs the control plane only without a host.",
        tests=(
            "tests/unit/vector/stores/test_pinecone_index.py::test_with_a_host_the_control_plane_is_not_called",
        ),
    ),
    Requirement(
        id="vector.hosted.consistent",
        source="Store constructors",
        says="A consistent hosted store waits for what it wrote, up to a limit.",
        tests=(
            "tests/unit/vector/stores/test_pinecone_consistency.py::test_a_write_returns_when_everybody_reads_it",
            "tests/unit/vector/stores/test_pinecone_consistency.py::test_a_write_that_stays_invisible_is_an_error_with_its_position_and_stays_written",
            "tests/unit/vector/stores/test_pinecone_consistency.py::test_without_consistency_writes_do_not_wait_and_reads_lag",
        ),
    ),
    Requirement(
        id="vector.file.exact",
        source="Store constructors",
        says="The file store is exact and filters in SQL.",
        tests=(
            "src/lib/testing/vector_store/search.py::SearchContract::test_what_is_found_is_what_counting_it_out_finds",
        ),
    ),
    Requirement(
        id="vector.embedded-a.batches",
        source="Store constructors",
        says="The first embedded store is exact and filters in growing batches.",
        tests=(
            "tests/unit/vector/stores/test_lancedb_search.py::test_the_first_batch_is_only_where_the_filter_begins",
        ),
    ),
    Requirement(
        id="vector.embedded-b.refuses",
        source="Store constructors",
        says="The second embedded store refuses what it cannot express.",
        tests=(
            "tests/unit/vector/filter/test_refusals.py::test_every_feature_is_refused_somewhere_and_none_by_the_reference",
        ),
    ),
    Requirement(
        id="vector.rerank.fetch-k",
        source="Reranking",
        says="fetch_k hits are retrieved; the best k come back with their first-stage scores.",
        tests=(
            "tests/unit/vector/rerank/test_index.py::test_the_best_of_fetch_k_candidates_keep_their_first_stage_scores",
            "tests/unit/vector/rerank/test_index.py::test_thirty_candidates_are_fetched_and_five_returned_unless_said_otherwise",
        ),
    ),
    Requirement(
        id="vector.rerank.llm-listwise",
        source="Reranking",
        says="The model sees the query and numbered passages and returns the order.",
        tests=(
            "tests/unit/vector/rerank/test_llm.py::test_the_model_gives_its_order_in_one_call",
            "tests/unit/vector/rerank/test_llm.py::test_the_models_order_is_taken_and_what_it_leaves_out_comes_after",
        ),
    ),
    Requirement(
        id="vector.rerank.llm-max-chars",
        source="Reranking",
        says="A passage is cut after 800 characters by default.",
        tests=(
            "tests/unit/vector/rerank/test_llm.py::test_eight_hundred_characters_are_shown_unless_said_otherwise",
        ),
    ),
    Requirement(
        id="vector.rerank.llm-unreadable",
        source="Reranking",
        says="An unreadable reply keeps the order and is no failure.",
        tests=(
            "tests/unit/vector/rerank/test_llm.py::test_an_unreadable_reply_keeps_the_original_order",
        ),
    ),
    Requirement(
        id="vector.rerank.endpoint-a",
        source="Reranking",
        says="The first endpoint is one plain POST.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
            "tests/unit/vector/rerank/test_http.py::test_cohere_ranks_the_texts_that_are_not_blank",
        ),
    ),
    Requirement(
        id="vector.rerank.endpoint-b",
        source="Reranking",
        says="The second endpoint is one plain POST whose answer lists indexes and scores.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
            "tests/unit/vector/rerank/test_http.py::test_voyage_ranks_the_texts_that_are_not_blank",
            "tests/unit/vector/rerank/test_http.py::test_the_order_is_that_of_the_scores_not_that_of_the_answer",
        ),
    ),
    Requirement(
        id="observe.observer.signature",
        source="Observer",
        says="The observer and its methods have the named parameters.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="observe.observer.drain",
        source="Observer",
        says="Draining waits for the traces of what has ended so far, the bus flushed first.",
        tests=(
            "tests/unit/observe/test_observer_queues.py::test_draining_waits_for_what_has_ended_before_and_for_nothing_that_ends_meanwhile",
            "tests/unit/observe/test_observer_queues.py::test_drain_says_so_when_the_bus_could_not_deliver",
        ),
    ),
    Requirement(
        id="observe.observer.export-trace",
        source="Observer",
        says="A trace can be exported at any time; provisionally, it is what is new and a provisional root.",
        tests=(
            "tests/unit/observe/test_observer_open_runs.py::test_a_trace_can_be_exported_at_any_time_and_again",
            "tests/unit/observe/test_observer_open_runs.py::test_an_open_run_is_exported_bit_by_bit",
        ),
    ),
    Requirement(
        id="observe.observer.flush-open",
        source="Observer",
        says="What is new in open roots is exported, of crashed processes too.",
        tests=(
            "tests/unit/observe/test_observer_open_runs.py::test_open_runs_are_flushed_at_intervals",
            "tests/unit/observe/test_observer_open_runs.py::test_a_run_whose_process_died_is_exported_as_interrupted_once_and_corrected_later",
        ),
    ),
    Requirement(
        id="observe.observer.backfill",
        source="Observer",
        says="Finished roots of the log are exported, since a time and up to a limit.",
        tests=(
            "tests/unit/observe/test_observer_open_runs.py::test_backfill_exports_what_has_ended_oldest_first",
            "tests/unit/observe/test_observer_open_runs.py::test_backfill_can_begin_at_a_time_and_can_be_switched_off",
        ),
    ),
    Requirement(
        id="observe.observer.sample-and-tenant",
        source="Observer",
        says="A fraction of the traces, or one tenant's, can be exported alone.",
        tests=(
            "tests/unit/observe/test_observer_ended_runs.py::test_a_sample_holds_whole_traces_by_the_last_64_bits_of_their_ids",
            "tests/unit/observe/test_observer_ended_runs.py::test_an_observer_of_one_tenant_sees_no_other",
        ),
    ),
    Requirement(
        id="observe.observer.settle",
        source="Observer",
        says="A trace is exported once it has settled.",
        tests=(
            "tests/unit/observe/test_observer_ended_runs.py::test_a_trace_is_exported_only_once_it_has_settled",
        ),
    ),
    Requirement(
        id="observe.spans.parent-events",
        source="Observer",
        says="A child hangs under the exact call or turn that started it, else under its parent's run.",
        tests=(
            "tests/unit/observe/test_run_spans.py::test_a_child_hangs_under_exactly_what_started_it",
            "tests/unit/observe/test_session_spans.py::test_turns_hang_under_their_session_and_runs_under_the_exact_turn",
        ),
    ),
    Requirement(
        id="observe.spans.one-run",
        source="Observer",
        says="Spans are of one run, from its events in order.",
        tests=(
            "tests/unit/observe/test_run_spans.py::test_a_piece_of_a_log_and_a_mixture_of_logs_are_refused",
        ),
    ),
    Requirement(
        id="observe.spans.open-end",
        source="Observer",
        says="A span without an end event has no end.",
        tests=(
            "tests/properties/test_spans.py::test_exactly_the_unfinished_work_of_a_log_has_open_spans",
        ),
    ),
    Requirement(
        id="observe.spans.content",
        source="Observer",
        says="Content is attached only if captured, and clipped to a limit.",
        tests=(
            "tests/unit/observe/test_content.py::test_nothing_is_shown_unless_content_is_captured",
            "tests/unit/observe/test_content.py::test_what_fits_is_shown_whole_and_nothing_else_exceeds_the_limit",
            "tests/properties/test_spans.py::test_captured_content_never_exceeds_the_limit",
        ),
    ),
    Requirement(
        id="observe.sink.parents-first",
        source="Trace sinks",
        says="Spans are delivered parents first.",
        tests=(
            "tests/unit/observe/test_observer_ended_runs.py::test_children_come_with_their_root_parents_first_and_in_one_export",
            "tests/properties/test_spans.py::test_every_parent_comes_before_its_children_and_none_is_missing",
        ),
    ),
    Requirement(
        id="observe.sink.failure",
        source="Trace sinks",
        says="A sink fails with ExportError alone; it is logged and no run notices.",
        tests=(
            "src/lib/testing/sink.py::SinkContract::test_it_fails_with_an_export_error_and_no_other",
            "tests/unit/observe/test_observer_queues.py::test_a_failing_sink_is_logged_and_delays_no_other_sink",
        ),
    ),
    Requirement(
        id="observe.sink.idempotent",
        source="Trace sinks",
        says="Ids are deterministic, and a span may come again.",
        tests=(
            "src/lib/testing/sink.py::SinkContract::test_a_trace_may_come_again",
            "tests/unit/observe/test_span_ids.py::test_ids_are_those_that_every_release_derives",
        ),
    ),
    Requirement(
        id="observe.sink.signatures",
        source="Trace sinks",
        says="Every sink is made with the named parameters.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="observe.sink.memory",
        source="Trace sinks",
        says="The memory sink keeps everything.",
        tests=(
            "tests/unit/observe/test_sinks.py::test_the_memory_sink_keeps_the_last_version_of_each_span_in_its_first_place",
        ),
    ),
    Requirement(
        id="observe.sink.console",
        source="Trace sinks",
        says="The console gets a tree for each trace.",
        tests=("tests/unit/observe/test_sinks.py::test_the_console_gets_one_tree_for_each_trace",),
    ),
    Requirement(
        id="observe.sink.callable",
        source="Trace sinks",
        says="A function that returns or awaits is a sink.",
        tests=(
            "tests/unit/observe/test_sinks.py::test_a_function_that_returns_an_awaitable_is_awaited",
            "tests/unit/observe/test_sinks.py::test_a_function_may_block_and_an_object_may_be_called",
        ),
    ),
    Requirement(
        id="observe.sink.otel",
        source="Trace sinks",
        says="Any OpenTelemetry exporter is a way out, in batches, in a dialect.",
        tests=(
            "tests/unit/observe/test_otel_environment.py::test_the_stock_exporter_delivers_the_same_as_the_sender_of_our_own",
            "tests/unit/observe/test_otel_spans.py::test_spans_go_in_batches_one_after_the_other_in_a_thread_that_may_block",
            "tests/unit/observe/test_otel_spans.py::test_the_dialect_names_the_attributes",
        ),
    ),
    Requirement(
        id="observe.sink.a",
        source="Trace sinks",
        says="The first backend gets OTLP over HTTP with both keys.",
        tests=(
            "tests/unit/observe/test_langfuse_sink.py::test_spans_come_with_the_keys_and_the_version_of_their_ingestion",
            "tests/unit/observe/test_langfuse_sink.py::test_environment_and_tags_are_on_every_span",
        ),
    ),
    Requirement(
        id="observe.sink.b",
        source="Trace sinks",
        says="The second backend drops orphans in silence, so whole traces go parents first.",
        tests=(
            "tests/unit/observe/test_langsmith_sink.py::test_spans_come_with_the_key_and_the_project",
            "tests/unit/observe/test_langsmith_sink.py::test_a_child_without_its_parent_is_dropped_silently",
        ),
    ),
    Requirement(
        id="observe.sink.c",
        source="Trace sinks",
        says="The third backend gets OpenInference attributes.",
        tests=(
            "tests/unit/observe/test_phoenix_sink.py::test_the_words_are_those_of_openinference",
            "tests/unit/observe/test_phoenix_sink.py::test_spans_come_with_the_key_as_protobuf_and_into_the_project",
        ),
    ),
    Requirement(
        id="observe.score.otel",
        source="Trace sinks",
        says="A score is a span of fixed id below what was judged.",
        tests=(
            "tests/unit/observe/test_otel_scores.py::test_a_score_becomes_a_span_without_length_below_what_was_judged",
            "tests/unit/observe/test_otel_scores.py::test_ids_of_scores_are_fixed_by_trace_span_and_name",
        ),
    ),
    Requirement(
        id="observe.score.a",
        source="Trace sinks",
        says="The first backend gets a score once, on trace or observation.",
        tests=(
            "tests/unit/observe/test_langfuse_sink.py::test_a_score_is_sent_as_its_type_with_its_id_and_its_time",
            "tests/unit/observe/test_langfuse_sink.py::test_a_score_that_comes_again_changes_in_place_even_at_another_hour_and_zone",
        ),
    ),
    Requirement(
        id="observe.score.b",
        source="Trace sinks",
        says="The second backend gets feedback on a run and needs a span.",
        tests=(
            "tests/unit/observe/test_langsmith_sink.py::test_a_score_is_feedback_of_a_fixed_id_on_a_run_of_a_project",
            "tests/unit/observe/test_langsmith_sink.py::test_a_score_of_a_whole_trace_is_refused_since_there_is_no_run_to_put_it_on",
        ),
    ),
    Requirement(
        id="observe.score.c",
        source="Trace sinks",
        says="The third backend gets annotations, updated in place, tried again until the span is there.",
        tests=(
            "tests/unit/observe/test_phoenix_sink.py::test_scores_are_annotations_of_a_span_in_one_request",
            "tests/unit/observe/test_phoenix_sink.py::test_a_score_that_comes_again_changes_in_place",
            "tests/unit/observe/test_phoenix_sink.py::test_a_span_that_does_not_come_leaves_its_scores_queued_and_that_is_logged",
        ),
    ),
    Requirement(
        id="tools.signatures",
        source="Built-in tools",
        says="Every factory has the named parameters and defaults.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="tools.fetch.public",
        source="Built-in tools",
        says="Every resolved address is public unless private networks are allowed.",
        tests=(
            "tests/unit/tools/builtin/fetch/test_resolver.py::test_one_address_that_may_not_be_reached_spoils_the_name",
            "tests/unit/tools/builtin/fetch/test_ssrf_corpus.py::test_every_case_has_its_expected_outcome_over_pinned_connections",
            "tests/unit/tools/builtin/fetch/test_network.py::test_real_sockets_on_a_private_network_that_is_allowed",
        ),
    ),
    Requirement(
        id="tools.fetch.pinned",
        source="Built-in tools",
        says="The connection leads to the address that was validated.",
        tests=(
            "tests/unit/tools/builtin/fetch/test_network.py::test_a_connection_that_leads_elsewhere_is_not_used",
            "tests/unit/tools/builtin/fetch/test_network.py::test_a_name_that_moves_inside_is_caught_with_the_next_connection",
        ),
    ),
    Requirement(
        id="tools.fetch.redirects",
        source="Built-in tools",
        says="Every redirect is checked anew.",
        tests=(
            "tests/unit/tools/builtin/fetch/test_fetcher.py::test_redirects_end",
            "tests/unit/tools/builtin/fetch/test_ssrf_corpus.py::test_every_case_has_its_expected_outcome_through_a_custom_transport",
        ),
    ),
    Requirement(
        id="tools.fetch.capped",
        source="Built-in tools",
        says="Bodies are capped while they stream.",
        tests=(
            "tests/unit/tools/builtin/fetch/test_body.py::test_a_body_is_cut_at_the_limit_exactly",
            "tests/unit/tools/builtin/fetch/test_body.py::test_a_body_without_end_is_cut",
        ),
    ),
    Requirement(
        id="tools.fetch.blocked",
        source="Built-in tools",
        says="A refusal is FetchBlocked and names no internal address.",
        tests=(
            "tests/unit/tools/builtin/fetch/test_fetcher.py::test_what_the_policy_forbids_is_blocked",
            "tests/unit/tools/builtin/fetch/test_ssrf_corpus.py::test_refusals_of_literal_addresses_do_not_repeat_them",
        ),
    ),
    Requirement(
        id="tools.files.confined",
        source="Built-in tools",
        says="A path stays inside the root after resolution, links included.",
        tests=(
            "tests/unit/tools/builtin/files/test_corpus.py::test_every_case_of_the_corpus_has_its_expected_outcome",
            "tests/unit/tools/builtin/files/test_race.py::test_no_byte_from_outside_comes_through_a_race",
        ),
    ),
    Requirement(
        id="tools.files.hidden",
        source="Built-in tools",
        says="Hidden names are refused unless allowed.",
        tests=(
            "tests/unit/tools/builtin/files/test_deny.py::test_what_folds_to_a_leading_dot_is_hidden",
            "tests/unit/tools/builtin/files/test_race.py::test_no_race_through_links_leads_to_what_is_hidden",
        ),
    ),
    Requirement(
        id="tools.files.denied",
        source="Built-in tools",
        says="Denied names are always refused.",
        tests=(
            "tests/unit/tools/builtin/files/test_deny.py::test_no_spelling_of_a_denied_name_gets_past",
        ),
    ),
    Requirement(
        id="tools.files.read",
        source="Built-in tools",
        says="Reading counts lines from zero and tells if it was cut.",
        tests=(
            "tests/unit/tools/builtin/files/test_access.py::test_a_read_tells_everything_that_the_design_names",
            "tests/unit/tools/builtin/files/test_lines.py::test_pages_agree_with_what_splitting_the_whole_text_gives",
        ),
    ),
    Requirement(
        id="tools.search.meta",
        source="Built-in tools",
        says="A search is one GET to the operator's instance, for JSON.",
        tests=(
            "tests/unit/tools/builtin/search/test_searxng.py::test_a_search_is_one_get_with_the_headers_that_the_limiter_wants",
        ),
    ),
    Requirement(
        id="tools.search.meta-json",
        source="Built-in tools",
        says="An instance without JSON answers 403, and its operator reads the way out.",
        tests=(
            "tests/unit/tools/builtin/search/test_searxng_failures.py::test_a_server_without_json_says_what_its_operator_must_do",
        ),
    ),
    Requirement(
        id="tools.search.api",
        source="Built-in tools",
        says="The search API is one GET with its key in a header.",
        tests=(
            "tests/unit/tools/builtin/search/test_brave.py::test_results_are_read_and_the_request_is_what_brave_wants",
        ),
    ),
    Requirement(
        id="server.mcp",
        source="Server package and command line",
        says="POST /mcp, a stateless subset.",
        tests=(
            "packages/lib-server/tests/test_mcp.py::test_the_agents_of_the_server_are_tools_and_their_calls_are_runs",
            "packages/lib-server/tests/test_mcp.py::test_without_a_session_there_is_only_post",
            "packages/lib-server/tests/test_mcp.py::test_a_request_is_answered_with_the_status_of_the_protocol",
        ),
    ),
    Requirement(
        id="server.mcp.edge",
        source="Authentication",
        says="POST /mcp is behind authentication and limits, and origins are checked.",
        tests=(
            "packages/lib-server/tests/test_mcp.py::test_a_caller_without_credentials_or_scope_is_refused",
            "packages/lib-server/tests/test_mcp.py::test_a_run_above_a_quota_is_a_failed_call",
            "packages/lib-server/tests/test_mcp.py::test_a_body_above_the_limit_is_refused",
            "packages/lib-server/tests/test_mcp.py::test_a_request_is_answered_with_the_status_of_the_protocol",
            "packages/lib-server/tests/test_mcp_tasks.py::test_a_task_of_another_tenant_is_a_missing_one",
        ),
    ),
    Requirement(
        id="server.a2a",
        source="Server package and command line",
        says="The experimental A2A interface.",
        tests=(
            "packages/lib-server/tests/test_a2a.py::test_a_message_becomes_a_turn_of_its_caller_and_its_answer_an_artifact",
            "packages/lib-server/tests/test_a2a.py::test_a_stream_shows_the_task_its_states_and_at_last_the_whole_answer",
            "packages/lib-server/tests/test_a2a.py::test_a_stream_pauses_with_its_task_and_a_subscriber_sees_it_go_on",
            "packages/lib-server/tests/test_a2a.py::test_tasks_are_listed_in_pages_last_changed_first",
            "packages/lib-server/tests/test_a2a.py::test_a_task_is_cancelled_once",
            "packages/lib-server/tests/test_a2a.py::test_the_card_is_public_and_says_where_and_how_the_agent_is_reached",
            "packages/lib-server/tests/test_a2a.py::test_history_is_as_long_as_its_reader_wants",
            "packages/lib-server/tests/test_a2a.py::test_a_configuration_that_means_nothing_is_refused",
            "packages/lib-server/tests/test_a2a.py::test_a_version_that_is_not_spoken_is_refused",
            "packages/lib-server/tests/test_a2a_sdk.py::test_the_client_of_the_sdk_sends_follows_decides_lists_and_cancels",
        ),
    ),
    Requirement(
        id="versioning.levels",
        source="Versioning",
        says="Modules are stable, provisional or experimental.",
        tests=("tests/docs/test_docs_src.py::test_every_public_module_has_one_level_of_stability",),
    ),
    Requirement(
        id="server.runs.start",
        source="Server package and command line",
        says="A start is idempotent.",
        tests=(
            "packages/lib-server/tests/test_runs.py::test_a_request_with_an_idempotency_key_starts_one_run",
            "packages/lib-server/tests/test_runs.py::test_a_key_names_the_run_as_the_engine_names_it",
            "packages/lib-server/tests/resume/test_resume.py::test_each_client_sees_each_event_once_and_in_order",
        ),
    ),
    Requirement(
        id="server.runs.cancel",
        source="Server package and command line",
        says="A run is cancelled.",
        tests=("packages/lib-server/tests/test_runs.py::test_a_run_is_cancelled_once",),
    ),
    Requirement(
        id="server.runs.events",
        source="Server package and command line",
        says="A stream of events resumes by Last-Event-ID.",
        tests=(
            "packages/lib-server/tests/test_streams.py::test_a_stream_that_is_resumed_goes_on_behind_the_last_event",
            "packages/lib-server/tests/test_streams.py::test_random_disconnects_lose_and_repeat_nothing",
            "packages/lib-server/tests/resume/test_resume.py::test_each_client_sees_each_event_once_and_in_order",
        ),
    ),
    Requirement(
        id="server.approvals",
        source="Server package and command line",
        says="Pending calls are decided, with the scope approve.",
        tests=(
            "packages/lib-server/tests/test_approvals.py::test_an_approval_is_listed_and_given_once",
            "packages/lib-server/tests/test_approvals.py::test_a_decision_needs_the_scope_and_the_tenant",
            "packages/lib-server/tests/test_approvals.py::test_an_approval_of_a_run_that_was_cancelled_is_withdrawn",
        ),
    ),
    Requirement(
        id="server.sessions",
        source="Server package and command line",
        says="Sessions stream their replies.",
        tests=(
            "packages/lib-server/tests/test_sessions.py::test_a_session_answers_turn_by_turn_until_it_is_closed",
            "packages/lib-server/tests/test_open_streams.py::test_a_stream_that_waits_for_its_turn_ends_when_its_key_is_revoked",
        ),
    ),
    Requirement(
        id="server.openapi",
        source="Server package and command line",
        says="Every route is described.",
        tests=(
            "packages/lib-server/tests/test_openapi.py::test_every_route_is_in_the_document_and_nothing_else",
            "packages/lib-server/tests/fuzz/test_openapi_document.py::test_all_checks_of_schemathesis_pass_also_in_sequences",
        ),
    ),
    Requirement(
        id="server.serve",
        source="Server package and command line",
        says="lib-server serves a factory on loopback, in its own loop.",
        tests=(
            "packages/lib-server/tests/test_serving.py::test_a_factory_is_called_in_the_loop_of_the_server",
            "packages/lib-server/tests/test_serving.py::test_the_command_listens_on_this_machine_unless_callers_are_authenticated",
        ),
    ),
    Requirement(
        id="cli.store",
        source="Server package and command line",
        says="Check, runs and events only read.",
        tests=(
            "tests/unit/cli/test_store.py::test_nothing_is_written_by_looking",
            "tests/unit/cli/test_store.py::test_check_tells_the_layout_and_how_much_there_is",
            "tests/unit/cli/test_store.py::test_runs_are_listed_for_people_and_for_programs",
        ),
    ),
    Requirement(
        id="cli.store-verify",
        source="Server package and command line",
        says="Verify checks every log and its blobs, deeply if wanted.",
        tests=(
            "tests/unit/cli/test_store.py::test_a_fault_is_shown_and_sets_the_exit_status",
            "tests/unit/events/test_verify.py::test_missing_blobs_are_found_and_by_a_deep_check_damaged_ones",
        ),
    ),
    Requirement(
        id="mcp.serve",
        source="Server package and command line",
        says="A tool registry is served to MCP clients.",
        tests=(
            "tests/unit/mcp/test_server.py::test_a_tool_is_listed_with_its_schemas_and_its_effect",
            "tests/unit/mcp/test_stdio.py::test_every_byte_on_the_wire_is_a_message",
            "tests/unit/mcp/test_stdio.py::test_an_agent_of_an_engine_is_served",
        ),
    ),
    Requirement(
        id="mcp.client",
        source="Versioning",
        says="There is a client of MCP.",
        tests=(
            "tests/unit/mcp/client/test_durable.py::test_an_agent_uses_the_tools_of_a_server",
            "tests/unit/mcp/client/test_hostile.py::test_a_run_goes_on_after_its_call",
        ),
    ),
    Requirement(
        id="auth.server.keys",
        source="Authentication",
        says="Keys are kept hashed and compared in constant time.",
        tests=(
            "packages/lib-server/tests/auth/test_api_keys.py::test_an_unknown_id_and_a_wrong_secret_cost_the_same_reads_and_answer_the_same",
            "packages/lib-server/tests/auth/test_api_keys.py::test_no_key_is_shown_by_anything_but_its_creation",
            "packages/lib-server/tests/auth/test_floods.py::test_apikey_030_the_authenticator_holds_no_key",
        ),
    ),
    Requirement(
        id="auth.server.tokens",
        source="Authentication",
        says="Tokens: algorithms and claims are checked, keys fetched rarely.",
        tests=(
            "packages/lib-server/tests/auth/test_jwt.py::test_each_case_of_the_corpus_has_the_outcome_that_it_states",
            "packages/lib-server/tests/auth/test_jwt.py::test_refusals_beyond_the_corpus",
            "packages/lib-server/tests/auth/test_jwks.py::test_invented_key_ids_make_one_request_in_a_cooldown",
        ),
    ),
    Requirement(
        id="auth.server.principal",
        source="Authentication",
        says="Tenant and user come from the principal; foreign is missing.",
        tests=(
            "packages/lib-server/tests/auth/test_requests.py::test_a_run_belongs_to_the_tenant_of_the_key_whatever_the_request_says",
            "packages/lib-server/tests/test_edge.py::test_a_foreign_run_is_exactly_a_missing_one",
            "packages/lib-server/tests/test_two_tenants.py::test_nothing_of_one_tenant_reaches_the_other",
        ),
    ),
    Requirement(
        id="auth.api-keys",
        source="Authentication",
        says="Stores, rerankers, sinks and providers take their keys as the named parameters.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="auth.search-header",
        source="Authentication",
        says="The search API's key goes in its header and nowhere else.",
        tests=(
            "tests/unit/tools/builtin/search/test_brave.py::test_results_are_read_and_the_request_is_what_brave_wants",
            "tests/unit/tools/builtin/search/test_brave_key.py::test_the_key_is_in_no_error_and_no_log",
        ),
    ),
    Requirement(
        id="events.observer-group",
        source="Events",
        says="The observer follows the bus under its own group.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
            "tests/unit/observe/test_observer_ended_runs.py::test_one_group_has_one_observer",
        ),
    ),
    Requirement(
        id="events.swarm",
        source="Events",
        says="A handoff of a swarm is an event.",
        tests=(
            "tests/unit/algorithms/test_swarm.py::test_the_other_agent_goes_on_with_its_own_model_instructions_and_tools",
        ),
    ),
    Requirement(
        id="events.reflexion",
        source="Events",
        says="Feedback of reflexion is an event.",
        tests=(
            "tests/unit/algorithms/test_reflexion.py::test_feedback_is_on_the_log_and_the_agent_reads_it_after_its_own_answer",
        ),
    ),
    Requirement(
        id="events.guard-verdict",
        source="Events",
        says="A verdict stands in the log for each check, with a hash and no content; it counts in spend and is a span.",
        tests=(
            "tests/unit/engine/test_guards.py::test_each_check_stands_as_a_verdict_right_before_the_result_it_is_about",
            "tests/unit/engine/test_guards.py::test_verdicts_and_spans_hold_no_content",
            "tests/unit/observe/test_memory_and_guard_spans.py::test_a_verdict_is_a_moment_with_the_tokens_that_it_took",
            "tests/unit/observe/test_spend.py::test_guards_summaries_and_memories_count_the_tokens_of_the_model_they_called",
        ),
    ),
    Requirement(
        id="events.eval-score",
        source="Events",
        says="A score in the log goes to sinks that take scores.",
        tests=(
            "tests/unit/evals/test_score.py::test_a_score_is_appended_to_a_run_that_has_ended_and_does_not_open_it_again",
            "tests/unit/observe/test_delivery_of_scores.py::test_scores_follow_their_trace_late_ones_too_and_each_once",
        ),
    ),
    Requirement(
        id="events.context-summary",
        source="Events",
        says="A summary in the log is a span with its tokens.",
        tests=(
            "tests/unit/observe/test_memory_and_guard_spans.py::test_a_summary_is_a_moment_with_the_tokens_that_it_took",
        ),
    ),
    Requirement(
        id="events.context-summary-reused",
        source="Events",
        says="A summary is reused by the hash of its content, across restarts and workers.",
        tests=(
            "tests/unit/context/test_long_sessions.py::test_another_engine_on_the_same_store_goes_on_with_the_summary",
            "tests/unit/context/test_long_sessions.py::test_after_a_crash_at_any_point_the_same_bytes_are_sent",
            "tests/unit/context/test_long_sessions.py::test_another_run_of_the_same_text_takes_the_summary_that_is_there",
            "tests/unit/context/test_long_sessions.py::test_runs_that_are_given_a_growing_conversation_take_the_summaries_of_each_other",
            "tests/unit/context/test_long_sessions.py::test_what_was_erased_is_in_no_later_request",
        ),
    ),
    Requirement(
        id="events.memory",
        source="Events",
        says="A memory request and its end are a span.",
        tests=(
            "tests/unit/observe/test_memory_and_guard_spans.py::test_memory_is_searched_and_written_in_spans_of_its_own",
        ),
    ),
    Requirement(
        id="events.memory-ends",
        source="Events",
        says="A memory request is followed by its completion or its failure, after a crash, too.",
        tests=(
            "tests/unit/memory/test_agents.py::test_a_run_recalls_before_its_first_call_and_remembers_after_its_last",
            "tests/unit/memory/test_agents.py::test_a_memory_that_fails_fails_no_run",
            "tests/unit/memory/test_agents.py::test_a_crash_at_any_place_sends_the_same_and_stores_once",
            "tests/crash/test_crash_matrix.py::test_what_a_user_has_said_is_remembered_once",
        ),
    ),
    Requirement(
        id="events.tenant-inherited",
        source="Events",
        says="Derived events have the tenant of their source.",
        tests=(
            "tests/properties/test_tenant_events.py::test_a_tenant_cannot_observe_what_another_one_does",
        ),
    ),
    Requirement(
        id="events.spans-derived",
        source="Events",
        says="Spans are derived from events alone.",
        tests=(
            "tests/properties/test_spans.py::test_spans_of_a_log_are_the_same_bytes_at_each_reading",
        ),
    ),
    Requirement(
        id="errors.unsupported-filter",
        source="Errors",
        says="A filter that cannot be expressed.",
        tests=(
            "tests/unit/vector/filter/test_refusals.py::test_a_refusal_names_operator_field_and_way_out",
        ),
    ),
    Requirement(
        id="errors.dimension-mismatch",
        source="Errors",
        says="A vector of another length.",
        tests=(
            "src/lib/testing/vector_store/input.py::InputContract::test_a_vector_of_another_length_is_refused_with_both_lengths",
        ),
    ),
    Requirement(
        id="errors.hybrid-unavailable",
        source="Errors",
        says="Hybrid search without full text.",
        tests=(
            "tests/unit/vector/test_index.py::test_hybrid_search_of_a_store_without_it_is_an_error_unless_auto",
        ),
    ),
    Requirement(
        id="errors.export-error",
        source="Errors",
        says="A sink that does not deliver.",
        tests=(
            "src/lib/testing/sink.py::SinkContract::test_it_fails_with_an_export_error_and_no_other",
        ),
    ),
    Requirement(
        id="errors.fetch-blocked",
        source="Errors",
        says="A request that policy refuses is a ToolError without internal addresses.",
        tests=(
            "tests/unit/tools/builtin/fetch/test_fetcher.py::test_what_the_policy_forbids_is_blocked",
        ),
    ),
    Requirement(
        id="errors.unsupported-modality",
        source="Errors",
        says="An attachment that the client did not declare fails the call.",
        tests=(
            "tests/unit/engine/test_model_calls.py::test_an_attachment_that_the_client_did_not_declare_fails_the_call",
            "tests/unit/llm/test_chat_client.py::test_a_modality_that_was_not_declared_is_refused_before_any_io",
        ),
    ),
    Requirement(
        id="errors.schema-too-new",
        source="Errors",
        says="A store of a newer release is refused.",
        tests=(
            "tests/unit/events/test_sqlite_files.py::test_a_newer_layout_is_refused_and_left_alone",
            "tests/unit/events/test_postgres_layout.py::test_a_store_of_a_newer_release_is_refused_and_left_alone",
            "tests/unit/events/test_redis_layout.py::test_a_place_of_a_newer_release_is_refused_and_left_as_it_is",
        ),
    ),
    Requirement(
        id="errors.too-many-connections",
        source="Errors",
        says="A pool too small for the partitions is refused.",
        tests=(
            "tests/unit/events/test_redis_arguments.py::test_a_pool_too_small_for_the_partitions_is_refused_at_construction_with_the_rule",
            "tests/unit/events/test_postgres_store.py::test_a_pool_too_small_for_the_partitions_is_refused_with_the_rule",
        ),
    ),
    Requirement(
        id="errors.blocked-outcome",
        source="Errors",
        says="A run that a guard blocks ends as BLOCKED.",
        tests=(
            "tests/unit/engine/test_guards.py::test_a_blocked_input_ends_the_run_before_any_model_call",
            "tests/unit/algorithms/test_react.py::test_a_reply_that_a_guard_blocked_ends_the_run_as_blocked",
        ),
    ),
    Requirement(
        id="errors.blocked-call",
        source="Errors",
        says="A blocked tool call is an ordinary failure of a tool.",
        tests=(
            "tests/unit/engine/test_guards.py::test_a_blocked_call_has_no_effect_and_the_run_goes_on",
        ),
    ),
    Requirement(
        id="limits.defaults",
        source="Limits",
        says="Every limit is the default of its parameter or field.",
        tests=(
            "tests/spec/test_signatures.py::test_every_constructor_and_method_has_the_parameters_and_defaults_of_the_specification",
            "tests/spec/test_signatures.py::test_every_dataclass_has_the_fields_and_defaults_of_the_specification",
        ),
    ),
    Requirement(
        id="limits.attachment",
        source="Limits",
        says="A large attachment without a blob store is refused.",
        tests=(
            "tests/unit/engine/test_refusals.py::test_large_attachments_without_a_blob_store_are_refused_before_the_run_begins",
        ),
    ),
    Requirement(
        id="limits.pool",
        source="Limits",
        says="The pool of the Redis event store scales with its partitions.",
        tests=(
            "tests/unit/events/test_redis_arguments.py::test_a_pool_too_small_for_the_partitions_is_refused_at_construction_with_the_rule",
        ),
    ),
    Requirement(
        id="limits.algorithms",
        source="Limits",
        says="Debates and swarms are bounded.",
        tests=(
            "tests/unit/algorithms/test_debate.py::test_too_few_and_too_many_agents_are_refused",
            "tests/unit/algorithms/test_debate.py::test_an_impossible_number_of_rounds_is_refused",
            "tests/unit/algorithms/test_swarm.py::test_no_more_than_the_cap_and_none_to_itself",
            "tests/contract/test_teams_on_stores.py::test_a_swarm_hands_over_once_in_a_reply_and_never_above_its_cap",
        ),
    ),
    Requirement(
        id="versioning.schema-version",
        source="Versioning",
        says="Event stores record their layout; newer ones are refused, older ones migrated.",
        tests=(
            "tests/replay/test_stores.py::test_a_migrated_store_holds_the_same_events_runs_leases_and_marks",
            "tests/unit/events/test_postgres_layout.py::test_a_store_of_layout_1_is_migrated_with_what_it_holds",
        ),
    ),
    Requirement(
        id="versioning.migrations",
        source="Versioning",
        says="Migrations are ordered, transactional, and run once.",
        tests=(
            "tests/unit/events/test_sqlite_writer.py::test_migrations_are_made_once_in_order_and_each_as_a_whole",
            "tests/unit/events/test_sqlite_migration.py::test_processes_that_race_migrate_once",
            "tests/unit/events/test_redis_layout.py::test_racing_processes_make_and_migrate_a_store_once",
        ),
    ),
    Requirement(
        id="versioning.upcast-on-write",
        source="Versioning",
        says="A stored payload is read byte for byte as it was written.",
        tests=(
            "tests/replay/test_stores.py::test_payloads_and_messages_are_rewritten_byte_for_byte",
        ),
    ),
    Requirement(
        id="versioning.frozen-logs",
        source="Versioning",
        says="Frozen logs fold to the state that was recorded with them.",
        tests=(
            "tests/replay/test_replay.py::test_a_log_folds_to_the_end_that_was_recorded_with_it",
        ),
    ),
    Requirement(
        id="versioning.text-only-messages",
        source="Versioning",
        says="Messages of text alone are written as before.",
        tests=(
            "tests/replay/test_stores.py::test_a_message_of_text_alone_is_written_as_release_0_2_wrote_it",
        ),
    ),
    Requirement(
        id="versioning.context",
        source="Versioning",
        says="Release 0.1.0 manages the context of long conversations.",
        tests=(
            "tests/unit/context/test_long_sessions.py::test_a_session_of_many_turns_stays_below_its_limit_and_in_the_cache",
            "tests/unit/context/test_long_sessions.py::test_after_a_crash_at_any_point_the_same_bytes_are_sent",
        ),
    ),
    Requirement(
        id="versioning.memory",
        source="Versioning",
        says="Release 0.1.0 has a long-term memory.",
        tests=(
            "tests/unit/memory/test_conversations.py::test_what_is_known_in_the_end_of_200_conversations",
            "tests/unit/memory/test_agents.py::test_nothing_is_shown_to_another_user_or_tenant",
            "tests/unit/memory/test_agents.py::test_results_of_tools_and_words_of_models_are_not_remembered",
            "tests/contract/test_erasure.py::test_no_byte_of_what_was_remembered_and_summed_up_is_left",
        ),
    ),
    Requirement(
        id="versioning.resilience",
        source="Versioning",
        says="Release 0.1.0 retries, falls back, breaks circuits, limits rates and keeps deadlines.",
        tests=(
            "tests/unit/resilience/test_retry.py::test_a_call_is_made_again_after_each_wait",
            "tests/unit/resilience/test_breaker.py::test_a_service_that_fails_is_refused_at_once_and_says_for_how_long",
            "tests/unit/resilience/test_limiter.py::test_no_minute_holds_more_than_its_limits",
            "tests/unit/resilience/test_deadlines_and_hedges.py::test_a_block_that_takes_longer_is_cancelled",
            "tests/contract/test_shared_rates.py::test_two_processes_take_no_more_than_one_limit",
        ),
    ),
    Requirement(
        id="versioning.provider-state",
        source="Versioning",
        says="Release 0.1.1 uses conversations that a provider keeps, in sessions.",
        tests=(
            "tests/unit/llm/test_responses_in_sessions.py::test_only_what_is_new_is_sent_in_a_turn_and_across_turns",
            "tests/unit/llm/test_responses_in_sessions.py::test_the_answers_are_the_same_without_handles",
            "tests/unit/context/test_long_sessions.py::test_what_the_provider_keeps_is_used_between_two_cuts",
        ),
    ),
    Requirement(
        id="versioning.native-providers",
        source="Versioning",
        says="Release 0.3.0 speaks the wires of providers, and a conversation moves between them.",
        tests=(
            "tests/contract/test_model_clients.py::test_calls_at_once_and_their_results",
            "tests/contract/test_model_clients.py::test_thinking_goes_back_with_its_seal_after_a_resume",
            "tests/contract/test_model_clients.py::test_the_name_of_a_request_is_on_its_reply_and_on_its_error",
            "tests/contract/test_model_moves.py::test_a_session_moves_between_three_providers",
            "tests/contract/test_preserved_thinking.py::test_a_session_goes_on_behind_each_cut_and_thinks_on",
        ),
    ),
    Requirement(
        id="versioning.multimodal",
        source="Versioning",
        says="Release 0.3.0 carries images, audio and files.",
        tests=(
            "tests/contract/test_model_clients.py::test_an_attachment_is_carried_or_refused_before_the_call",
        ),
    ),
    Requirement(
        id="versioning.loop-state",
        source="Versioning",
        says="The state of a loop has no agent and no hand-offs where they are not used.",
        tests=(
            "tests/unit/algorithms/test_swarm.py::test_the_state_of_a_loop_names_no_agent_and_no_hand_off_where_there_are_none",
            "tests/replay/test_replay.py::test_a_log_folds_to_the_end_that_was_recorded_with_it",
        ),
    ),
)
