"""Functions that emit.py does not generate."""

# Written by hand in the files *.hpp of this folder, because the declaration alone does not tell how C++ should look.
HAND = {
    "clt_apply_text", "clt_chunk", "clt_compile_set", "clt_constant",
    "clt_dataset_create_callback", "clt_devices_open",
    "clt_error_message", "clt_evaluate", "clt_layer_gru", "clt_layer_lstm", "clt_log_set", "clt_planner_weights",
    "clt_printable", "clt_split_with_sizes", "clt_tokenizer_encode", "clt_trainer_evaluate", "clt_value_dim",
    "clt_value_dtype", "clt_value_name", "clt_value_rank",
    # comm.hpp, for programs that include <cltrain/comm.h> or <cltrain/mpi.h>
    "clt_comm_abort", "clt_comm_accepts", "clt_comm_complete", "clt_comm_counts", "clt_comm_create",
    "clt_comm_create_between", "clt_comm_create_mpi", "clt_comm_destroy", "clt_comm_describe_transport",
    "clt_comm_device_count", "clt_comm_finalize", "clt_comm_needs_progress", "clt_comm_participant", "clt_comm_progress",
    "clt_comm_reserve", "clt_comm_residual_accept", "clt_comm_residual_create", "clt_comm_residual_destroy",
    "clt_comm_residual_get", "clt_comm_residual_has", "clt_comm_residual_set", "clt_comm_size", "clt_comm_start",
    "clt_comm_status", "clt_comm_supports", "clt_comm_test", "clt_world_open_mpi", "clt_world_set_deadlines_mpi",
}

# Left to C, and why.
OMITTED = {
    "clt_apply": "clt::apply takes the attributes as text, by clt_apply_text",
    "clt_array_of": "clt::array and clt::view",
    "clt_array_of_buffer": "clt::buffer",
    "clt_dataset_add_field": "clt::dataset::add_array takes any view",
    "clt_evaluation_value": "takes a struct of a callback",
    "clt_error_set": "for callbacks, which throw in C++",
    "clt_image_read": "writes memory of the caller, whose size is in an option",
    "clt_loader_set_memory": "memory of the caller that outlives the loader",
    "clt_comm_kind_name": "is called as in C: it takes and gives plain values",
    "clt_comm_shared_bytes": "is called as in C: it takes and gives plain values",
    "clt_comm_transport_name": "is called as in C: it takes and gives plain values",
    "clt_nearest": "for messages of tools",
    "clt_attribute_text": "the schema of operators is for tools",
    "clt_operator_operand": "the schema of operators is for tools",
    "clt_operator_result": "the schema of operators is for tools",
    "clt_split_frozen": "for tools that read checkpoints",
    "clt_world_close": "clt::world closes itself",
    "clt_world_count": "clt::world::ranks",
}

# What a constructor does after the C object was made: members.hpp has the members.
AFTER = {
    "clt_trainer_create": [
        "losses_ = clt_graph_loss_count(graph.c());",
        "means_ = losses_ + clt_graph_metric_count(graph.c());",
        "devices_ = store.device_count();",
        "one_rank_ = detail::one_rank(options.world.get());",
        "reservoir_ = kept_;",
    ],
    "clt_store_create": ["devices_ = devices.count<std::size_t>();"],
    "clt_store_create_with": ["devices_ = devices.count<std::size_t>();"],
    "clt_local_create": ["trainers_ = trainers.count<std::size_t>();"],
    "clt_planner_create": ["devices_ = detail::one_rank(options.world.get()) ? devices.count<std::size_t>() : 0;"],
}
