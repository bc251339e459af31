// Of gRPC's core, which is not there: the interop programs use nothing of it.
#pragma once
