// The page's program: the race view, and "Try it on yours", which needs a server.

import "./main.js";
import "./yours/yours.js";
