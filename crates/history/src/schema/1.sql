-- Times of day are UTC. Throughput is answers a second, latency milliseconds, memory MiB, unless a
-- column says otherwise.

CREATE TABLE holdfast_schema (version INTEGER NOT NULL, applied TIMESTAMP NOT NULL);

CREATE SEQUENCE multi_model_validation_metrics_ids;
CREATE TABLE multi_model_validation_metrics (
    id BIGINT DEFAULT nextval('multi_model_validation_metrics_ids'),
    timestamp TIMESTAMP,
    model_count UINTEGER,
    hardware_platform VARCHAR,
    execution_strategy VARCHAR,
    optimization_goal VARCHAR,
    predicted_throughput DOUBLE,
    actual_throughput DOUBLE,
    predicted_latency DOUBLE,
    predicted_latency_low DOUBLE,
    predicted_latency_high DOUBLE,
    actual_latency DOUBLE,
    predicted_memory DOUBLE,
    actual_memory DOUBLE,
    throughput_error_rate DOUBLE,
    latency_error_rate DOUBLE,
    memory_error_rate DOUBLE,
    model_configs VARCHAR
);

CREATE SEQUENCE multi_model_optimization_impact_ids;
CREATE TABLE multi_model_optimization_impact (
    id BIGINT DEFAULT nextval('multi_model_optimization_impact_ids'),
    timestamp TIMESTAMP,
    model_count UINTEGER,
    hardware_platform VARCHAR,
    baseline_strategy VARCHAR,
    optimized_strategy VARCHAR,
    baseline_throughput DOUBLE,
    optimized_throughput DOUBLE,
    throughput_improvement_percent DOUBLE,
    baseline_latency DOUBLE,
    optimized_latency DOUBLE,
    latency_improvement_percent DOUBLE,
    baseline_memory DOUBLE,
    optimized_memory DOUBLE,
    memory_improvement_percent DOUBLE,
    optimization_goal VARCHAR
);

CREATE SEQUENCE multi_model_refinement_metrics_ids;
CREATE TABLE multi_model_refinement_metrics (
    id BIGINT DEFAULT nextval('multi_model_refinement_metrics_ids'),
    timestamp TIMESTAMP,
    method VARCHAR,
    reason VARCHAR,
    metric VARCHAR,
    error_before DOUBLE,
    error_after DOUBLE,
    learned_from UBIGINT,
    judged_by UBIGINT,
    kept BOOLEAN
);

CREATE SEQUENCE multi_model_error_trends_ids;
CREATE TABLE multi_model_error_trends (
    id BIGINT DEFAULT nextval('multi_model_error_trends_ids'),
    timestamp TIMESTAMP,
    metric VARCHAR,
    direction VARCHAR,
    strength DOUBLE,
    p_value DOUBLE,
    observations UBIGINT,
    mean_error_rate DOUBLE
);

CREATE SEQUENCE inferences_ids;
CREATE TABLE inferences (
    id BIGINT DEFAULT nextval('inferences_ids'),
    timestamp TIMESTAMP,
    model VARCHAR,
    browser VARCHAR,
    backend VARCHAR,
    adapter VARCHAR,
    software_adapter BOOLEAN,
    "precision" VARCHAR,
    batch UBIGINT,
    batch_rows UBIGINT,
    queue_seconds DOUBLE,
    transfer_seconds DOUBLE,
    compute_seconds DOUBLE,
    readback_seconds DOUBLE,
    load_seconds DOUBLE,
    first_run_seconds DOUBLE,
    bytes_moved UBIGINT,
    memory_bytes UBIGINT,
    reused_bytes UBIGINT,
    error_class VARCHAR
);

CREATE SEQUENCE segment_runs_ids;
CREATE TABLE segment_runs (
    id BIGINT DEFAULT nextval('segment_runs_ids'),
    timestamp TIMESTAMP,
    device VARCHAR,
    segment VARCHAR,
    features VARCHAR,
    queue_seconds DOUBLE,
    transfer_seconds DOUBLE,
    compute_seconds DOUBLE,
    readback_seconds DOUBLE,
    "first" BOOLEAN,
    alone BOOLEAN
);

CREATE SEQUENCE setting_changes_ids;
CREATE TABLE setting_changes (
    id BIGINT DEFAULT nextval('setting_changes_ids'),
    timestamp TIMESTAMP,
    hardware_platform VARCHAR,
    setting VARCHAR,
    before DOUBLE,
    after DOUBLE,
    reason VARCHAR
);

-- What the predictor knows; one row for each name.
CREATE TABLE predictor_snapshots (
    name VARCHAR PRIMARY KEY,
    timestamp TIMESTAMP NOT NULL,
    content VARCHAR NOT NULL
);
