//! The conformance suite of backends: every case once, run on every backend by [`instantiate!`].
//!
//! A backend implements [`Subject`] in its tests and instantiates the suite:
//!
//! ```ignore
//! conformance::instantiate!(Mine);
//! ```
//!
//! Each case becomes a test. A kernel is run on copies of its arguments, with guards around every
//! array, by the interpreter as written, and by every target of the subject, as written and after
//! the tile passes. Results must be equal to the bit, except for what [`Promises`] leaves open.
//! Some cases also compute the result here, without the interpreter.

pub mod harness;
pub mod lane;
pub mod scalar;
mod subject;
pub mod values;

pub use subject::{Case, Failure, Promises, Refusal, Runner, Subject, Target, compile_with, shown};

/// One test for each case: `instantiate!(subject)`, where `subject` is an expression.
#[macro_export]
macro_rules! instantiate {
    ($subject:expr) => {
        $crate::suite!($subject, lane control:
            lanes_leave_a_while_loop_one_by_one
            rows_of_different_length_are_summed
            nested_branches_and_loops_merge_as_the_interpreter_merges
            values_that_a_loop_swaps_are_all_read_before_any_is_written
            conditions_that_hold_for_some_lanes_of_a_thread
            loops_end_at_the_ends_of_the_number_range
            positions_that_loops_move_stay_inside
            functions_and_random_words_of_each_lane
            an_assertion_that_fails_stops_the_launch
            nobody_waits_for_a_lane_that_an_assertion_stopped
            a_stopped_lane_decides_nothing
            a_loop_that_does_not_step_forwards_is_an_error
        );
        $crate::suite!($subject, lane memory:
            saxpy_of_any_size_and_layout
            every_dtype_is_copied_and_compared
            positions_outside_read_zero_or_other_and_are_not_written
            positions_in_steps_are_held_against_the_extents_wherever_they_begin
            rows_and_columns_by_division
            divisors_of_any_sign_divide_as_the_interpreter_does
            gathers_and_scatters_take_each_lane_where_it_points
            masks_and_others_of_each_lane
            one_value_for_all_lanes_is_read_and_written_once
            ids_know_groups_of_any_size
            atomics_of_every_kind_change_elements_and_give_what_was_there
            lanes_that_share_elements_all_count
            folds_into_shared_elements_all_count
            sums_of_floats_from_many_lanes
            all_lanes_at_one_place_leave_the_last_value
            atomics_and_folds_of_every_kind
            lanes_fold_into_elements_that_they_share_one_after_another
        );
        $crate::suite!($subject, lane groups:
            groups_are_reversed_in_shared_memory_of_every_dtype
            a_tree_of_sums_in_shared_memory
            reductions_scans_and_shuffles_of_the_group
            sums_of_floats_in_the_default_profile_are_close
            group_operations_in_loops_and_branches_of_all_lanes
            histograms_in_shared_memory
            atomics_of_every_kind_in_shared_memory
            buffers_of_two_axes_are_held_against_their_extents
            groups_of_2000_lanes_synchronise
            lanes_that_do_not_all_come_to_a_barrier_are_an_error
            loops_around_barriers_carry_values_of_each_lane
            rounds_that_differ_are_an_error_at_the_barrier
        );
        $crate::suite!($subject, lane axes:
            ids_know_their_axes
            stencils_of_any_size_and_layout
            groups_are_transposed_in_shared_memory
            group_operations_of_partial_groups
            lanes_that_do_not_exist_count_nothing
            three_axes_with_barriers_and_loops
            rows_take_turns_at_elements_that_they_share
            an_assertion_names_the_lane
        );
        $crate::suite!($subject, lane print:
            lines_come_in_the_order_of_the_ops_and_then_of_the_lanes
        );
        $crate::suite!($subject, lane random:
            random_kernels_give_what_the_interpreter_gives
        );
        $crate::suite!($subject, scalar functions:
            functions_of_f32
            functions_of_f64
            functions_of_i32
            functions_of_i64
            functions_of_u32
            functions_of_u64
            functions_of_bool
        );
    };
}

/// Tests of one module of cases.
#[macro_export]
macro_rules! suite {
    ($subject:expr, $suite:ident $module:ident: $($case:ident)*) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $case() {
                    let case = $crate::Case::new(&$subject, stringify!($case));
                    $crate::$suite::$module::$case(&case);
                }
            )*
        }
    };
}
