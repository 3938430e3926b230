mod cases;
mod fake;
mod model;
