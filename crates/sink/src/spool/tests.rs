mod cases;
pub(crate) mod fake;
mod model;
