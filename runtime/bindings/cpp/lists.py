"""Functions that emit.py does not generate."""

# Written by hand in head.hpp, members.hpp or tail.hpp, because the declaration alone does not tell how C++ should look.
HAND = {
    "clt_apply", "clt_apply_text", "clt_chunk", "clt_compile_set", "clt_constant",
    "clt_dataset_create_callback", "clt_devices_open",
    "clt_error_message", "clt_evaluate", "clt_layer_gru", "clt_layer_lstm", "clt_log_set", "clt_planner_weights",
    "clt_printable", "clt_split_with_sizes", "clt_tokenizer_encode", "clt_trainer_evaluate", "clt_value_dim",
    "clt_value_dtype", "clt_value_name", "clt_value_rank",
}

# Left to C, and why.
OMITTED = {
    "clt_array_of": "clt::array and clt::view",
    "clt_array_of_buffer": "clt::buffer",
    "clt_dataset_add_field": "clt::dataset::add_array takes any view",
    "clt_evaluation_value": "takes a struct of a callback",
    "clt_error_set": "for callbacks, which throw in C++",
    "clt_image_read": "writes memory of the caller, whose size is in an option",
    "clt_loader_set_memory": "memory of the caller that outlives the loader",
    "clt_nearest": "for messages of tools",
    "clt_attribute_text": "the schema of operators is for tools",
    "clt_operator_operand": "the schema of operators is for tools",
    "clt_operator_result": "the schema of operators is for tools",
    "clt_split_frozen": "for tools that read checkpoints",
    "clt_world_close": "worlds of MPI belong to C",
    "clt_world_count": "worlds of MPI belong to C",
}

# Headers that are left to C: collectives on OpenCL buffers, and MPI.
OMITTED_HEADERS = {"cltrain/comm.h", "cltrain/mpi.h"}

# What a constructor does after the C object was made: members.hpp has the members.
AFTER = {
    "clt_trainer_create": "means_ = clt_graph_loss_count(graph.c()) + clt_graph_metric_count(graph.c());",
}
