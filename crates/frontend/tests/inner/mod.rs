//! Tables and small functions, each by itself.

mod dim_text;
mod foreign;
mod source;
